"""Who is told when what is on offer changes. Decides nothing about when; puts each message into the right outboxes."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final
from weakref import WeakSet

import structlog

from gateway.catalog.primitives import Catalog
from gateway.json_types import JsonObject
from gateway.plugin import ListKind
from gateway.protocol import jsonrpc
from gateway.protocol.outbox import Outbox
from gateway.protocol.session import Session

log: Final = structlog.get_logger(__name__)

_LIST_CHANGED: Final[Mapping[ListKind, str]] = {
    "tools": "notifications/tools/list_changed",
    "prompts": "notifications/prompts/list_changed",
    "resources": "notifications/resources/list_changed",
}
_UPDATED: Final = "notifications/resources/updated"


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """One `subscriptions/listen` of the modern era: what it asked for, and what waits for it."""

    kinds: frozenset[ListKind]
    uris: frozenset[str]
    outbox: Outbox


class Announcements:
    """Sessions of the legacy era, and subscriptions of the modern one."""

    def __init__(self) -> None:
        self._sessions: Final[WeakSet[Session]] = WeakSet()
        """A session that nothing else holds is gone from here too."""
        self._subscriptions: Final[set[Subscription]] = set()
        self._is_closed = False

    def join(self, session: Session) -> None:
        self._sessions.add(session)

    @contextmanager
    def listen(self, kinds: frozenset[ListKind], uris: frozenset[str]) -> Iterator[Subscription]:
        """A subscription, for as long as the context lasts."""
        subscription = Subscription(kinds=kinds, uris=uris, outbox=Outbox())
        if self._is_closed:
            subscription.outbox.close()
        self._subscriptions.add(subscription)
        try:
            yield subscription
        finally:
            self._subscriptions.discard(subscription)

    def catalog_changed(self, old: Catalog, new: Catalog) -> None:
        """Announce each list that a client would now see differently, and each watched resource that was written."""
        for kind in _LIST_CHANGED:
            if old.fingerprints.get(kind) != new.fingerprints.get(kind):
                self.list_changed(kind)
        for uri in self._watched():
            if _version(uri, old) != _version(uri, new):
                self.resource_updated(uri)

    def list_changed(self, kind: ListKind) -> None:
        method = _LIST_CHANGED[kind]
        listening = [subscription.outbox for subscription in self._subscriptions if kind in subscription.kinds]
        sessions = [session.outbox for session in self._sessions if session.is_initialized]
        _put([*listening, *sessions], method, {"jsonrpc": jsonrpc.VERSION, "method": method})

    def resource_updated(self, uri: str) -> None:
        """Tell those who subscribed to `uri`."""
        listening = [subscription.outbox for subscription in self._subscriptions if uri in subscription.uris]
        sessions = [session.outbox for session in self._sessions if uri in session.subscriptions]
        message = {"jsonrpc": jsonrpc.VERSION, "method": _UPDATED, "params": {"uri": uri}}
        _put([*listening, *sessions], f"{_UPDATED} {uri}", message)

    def _watched(self) -> set[str]:
        watched = (each.uris for each in self._subscriptions)
        return set().union(*watched, *(session.subscriptions for session in self._sessions))

    def close(self) -> None:
        """End every subscription, now and to come: the daemon is about to stop."""
        self._is_closed = True
        for subscription in self._subscriptions:
            subscription.outbox.close()


def _version(uri: str, catalog: Catalog) -> str | None:
    """What `uri` was, or that nothing served it: whoever reads it again finds out."""
    found = catalog.resource(uri)
    return None if found is None else found[0].version


def _put(outboxes: list[Outbox], key: str, message: JsonObject) -> None:
    dropped = sum(not outbox.put(key, message) for outbox in outboxes)
    if dropped:
        log.warning("announcements dropped: nobody reads them", method=message["method"], clients=dropped)
