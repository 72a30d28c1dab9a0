"""Reports about upstreams: state, definitions, failures, and the latest standard error output."""

import time
from collections.abc import Mapping
from typing import Final

from gateway.config.secrets.redactor import LiveRedactor
from gateway.json_types import Json, JsonObject
from gateway.rfc3339 import timestamp
from gateway.transports.errors import HttpError
from gateway.upstreams.server import UpstreamServer
from gateway.upstreams.source import UpstreamSource

_UNKNOWN: Final = HttpError(status=404, message="There is no such upstream (any more)")


def upstreams_report(upstreams: UpstreamSource, redactor: LiveRedactor) -> JsonObject:
    """Return a report for each upstream. Texts from upstreams are masked: they may quote a secret."""
    return {"upstreams": [_facts(server, redactor) for server in upstreams.servers.values()]}


def upstream_states(upstreams: UpstreamSource) -> Mapping[str, str]:
    """Return the state of each upstream, by name."""
    return {name: server.state for name, server in upstreams.servers.items()}


def reconnect(upstreams: UpstreamSource, name: str) -> HttpError | None:
    """Reconnect an upstream, or return the reason for a refusal."""
    server = upstreams.servers.get(name)
    if server is None:
        return _UNKNOWN
    server.reconnect()
    return None


def _facts(server: UpstreamServer, redactor: LiveRedactor) -> dict[str, Json]:
    pool, masked, status = server.pool, redactor.text, server.status()
    sessions, said = pool.sessions, pool.stderr_tail
    return {
        "name": server.name,
        "state": server.state,
        "reason": masked(pool.circuit.reason) or None,
        "transport": status.get("transport"),
        "revision": status.get("revision"),
        "server": redactor.json(_server_info(sessions[0].server_info)) if sessions else None,
        "offers": status.get("offers", {}),
        "missing": redactor.json(status.get("missing", {})),
        "sessions": len(sessions),
        "calls": status["calls"],
        "restarts": pool.restarts,
        "since": timestamp(pool.circuit.since),
        "nextTryAt": _next_try(pool.circuit.next_try) if pool.circuit.reason else None,
        "errors": [{"at": timestamp(each.at), "message": masked(each.message)} for each in pool.circuit.failures],
        "stderr": None if said is None else masked(said).splitlines(),
    }


def _next_try(at: float) -> str | None:
    seconds = at - time.monotonic()
    return timestamp(time.time() + seconds) if seconds > 0 else None


def _server_info(info: JsonObject) -> JsonObject | None:
    name = info.get("name")
    return {"name": name, "version": info.get("version")} if isinstance(name, str) else None
