"""The answer of `/-/api/`: the name and version of this daemon, and what its API has."""

from typing import Final

import gateway
from gateway.app.components import Components
from gateway.json_types import JsonObject

API_VERSION: Final = 1


def daemon_info(components: Components, base_url: str | None, *, has_console: bool) -> JsonObject:
    """Return the answer.

    Args:
        components: those of the daemon.
        base_url: the URL under which the caller reaches the listener, if that has the MCP endpoint as well.
        has_console: whether the console is served.
    """
    document = components.pipeline.served.document
    return {
        "api": API_VERSION,
        "version": gateway.__version__,
        "name": document.server.name,
        "title": document.server.title,
        "console": has_console,
        "endpoint": endpoint_url(components, base_url),
        "features": {
            "tasks": any(tool.task for tool in components.pipeline.store.current.tools.values()),
            "store": components.state.replica is not None,
            "upstreams": bool(document.upstreams),
        },
    }


def endpoint_url(components: Components, base_url: str | None) -> str | None:
    """Return the URL of the MCP endpoint, as a caller reaches it who came by `base_url`; None where there is none."""
    listen, http = components.pipeline.first.listen, components.http
    base_url = listen.public_url.rstrip("/") if listen.public_url else base_url
    if base_url is not None:
        return f"{base_url}{listen.path}"
    return None if http is None else http.url
