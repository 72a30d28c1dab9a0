"""The answer of `/-/api/`: what this daemon is, and what its API has."""

from typing import Final

import gateway
from gateway.app.reports.components import Components
from gateway.json_types import JsonObject

API_VERSION: Final = 1


def about(components: Components, base_url: str | None, *, has_console: bool) -> JsonObject:
    """Return it.

    Args:
        components: those of the daemon.
        base_url: the URL under which the caller reaches the listener, if that has the MCP endpoint as well.
        has_console: whether the console is served.
    """
    document, listeners = components.pipeline.served.document, components.listeners()
    listen = components.pipeline.first.listen
    base_url = listen.public_url.rstrip("/") if listen.public_url else base_url
    own_url = None if listeners is None else listeners.http.url
    return {
        "api": API_VERSION,
        "version": gateway.__version__,
        "name": document.server.name,
        "title": document.server.title,
        "console": has_console,
        "endpoint": own_url if base_url is None else f"{base_url}{listen.path}",
        "features": {
            "tasks": any(tool.task for tool in components.pipeline.store.current.tools.values()),
            "store": components.state.replica is not None,
            "upstreams": bool(document.upstreams),
        },
    }
