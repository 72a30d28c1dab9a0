"""Who is told when what is on offer changes. Decides nothing about when; delivers to each stream's own queue."""

from collections.abc import Mapping
from typing import Final
from weakref import WeakSet

import structlog

from gateway.json_types import JsonObject
from gateway.plugin import ListKind
from gateway.protocol import jsonrpc
from gateway.protocol.session import Session

log: Final = structlog.get_logger(__name__)

_LIST_CHANGED: Final[Mapping[ListKind, str]] = {
    "tools": "notifications/tools/list_changed",
    "prompts": "notifications/prompts/list_changed",
    "resources": "notifications/resources/list_changed",
}


class Announcements:
    """Sessions of the legacy era. One that nothing else holds is gone from here too."""

    def __init__(self) -> None:
        self._sessions: Final[WeakSet[Session]] = WeakSet()

    def join(self, session: Session) -> None:
        self._sessions.add(session)

    def list_changed(self, kind: ListKind) -> None:
        for session in self._sessions:
            self._put(session, {"jsonrpc": jsonrpc.VERSION, "method": _LIST_CHANGED[kind]})

    def resource_updated(self, uri: str) -> None:
        """Tell the sessions that subscribed to `uri`."""
        message = {"jsonrpc": jsonrpc.VERSION, "method": "notifications/resources/updated", "params": {"uri": uri}}
        for session in self._sessions:
            if uri in session.subscriptions:
                self._put(session, message)

    def _put(self, session: Session, message: JsonObject) -> None:
        if not session.outbox.put(message):
            log.warning("announcement dropped: nobody reads the session's stream", method=message["method"])
