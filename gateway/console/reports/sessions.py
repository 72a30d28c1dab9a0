"""Legacy sessions and open streams, and ending a session."""

import time
from collections.abc import Callable, Iterable
from typing import Final

from gateway.config.secrets.redactor import LiveRedactor
from gateway.console.recording.call_record import CallRecord
from gateway.console.recording.recorded_calls import RecordedCalls
from gateway.console.responses import short_id
from gateway.json_types import Json, JsonObject
from gateway.protocol.exchange import Binding
from gateway.protocol.session import Session
from gateway.rfc3339 import timestamp
from gateway.transports.errors import HttpError
from gateway.transports.http_server import HttpServer
from gateway.wire.meta import title_of

MAX_LISTED: Final = 5000
_LISTEN: Final = "subscriptions/listen"
NO_SESSION: Final = HttpError(status=404, message="Unknown session")
_OF_PROCESS: Final = HttpError(status=409, message="The stdio session ends with its process")


OpenSessions = Callable[[], Iterable[tuple[Binding, Session]]]
"""Returns the open legacy sessions of this process with their transports."""


def sessions_report(
    open_sessions: OpenSessions, http: HttpServer, calls: RecordedCalls, redactor: LiveRedactor
) -> JsonObject:
    """Return the sessions of this process, newest first, and the open streams."""
    newest = sorted(open_sessions(), key=lambda found: -found[1].created_at)
    sessions = [_facts(binding, session, http, calls, redactor) for binding, session in newest[:MAX_LISTED]]
    # Open subscriptions of the modern era are running requests.
    listening = (_stream(record) for record in calls.running if record.method == _LISTEN)
    return {
        "sessions": sessions,
        "total": len(newest),
        "streams": [*listening, *({"kind": "get", **each} for each in sessions if each["streams"])],
    }


async def end_session(open_sessions: OpenSessions, http: HttpServer, name: str) -> HttpError | None:
    """End the session with this short id, or return the error."""
    found = next((each for each in open_sessions() if short_id(each[1].id) == name), None)
    if found is None:
        return NO_SESSION
    if found[0] is Binding.STDIO:
        return _OF_PROCESS
    return None if await http.end_session(found[1]) else NO_SESSION


def _facts(
    binding: Binding, session: Session, http: HttpServer, calls: RecordedCalls, redactor: LiveRedactor
) -> dict[str, Json]:
    count, address = calls.use_of(session.id)
    live, masked = http.sessions.served_here(session.id), redactor.text
    return {
        "id": short_id(session.id),
        "client": masked(title_of(session.client_info)),
        "revision": session.revision,
        "transport": binding.value,
        "principal": session.identity.principal,
        "address": address,
        "createdAt": timestamp(session.created_at),
        "lastUsedAt": timestamp(time.time() - (0.0 if live is None else live.idle_seconds)),
        "streams": live.readers if live is not None else int(binding is Binding.HTTP_SSE),
        "subscriptions": sorted(map(masked, session.subscriptions)),
        "calls": count,
        "view": session.view,
    }


def _stream(record: CallRecord) -> JsonObject:
    return {
        "kind": "listen",
        "id": record.id,
        "client": record.client,
        "revision": record.revision,
        "transport": record.transport,
        "principal": record.principal,
        "address": record.address,
        "createdAt": timestamp(record.at),
        "lastUsedAt": timestamp(record.at),
        "streams": 1,
        "subscriptions": sorted(map(record.redactor.text, _uris(record))),
        "calls": 0,
        "view": record.view,
    }


def _uris(record: CallRecord) -> list[str]:
    wanted: Json = {} if record.call is None else record.call.params.get("notifications")
    uris = wanted.get("resourceSubscriptions") if isinstance(wanted, dict) else None
    return [uri for uri in uris if isinstance(uri, str)] if isinstance(uris, list) else []
