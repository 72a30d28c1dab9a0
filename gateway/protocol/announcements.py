"""Who is told when what is on offer changes. Decides nothing about when; puts each message into the right outboxes.

A client is told of a list only if what it sees of it has changed, and of a resource only if it may read it.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import Final
from weakref import WeakSet

import structlog

from gateway.access.identity import Identity
from gateway.catalog.primitives import Catalog
from gateway.catalog.views import Views
from gateway.json_types import JsonObject
from gateway.plugin import ListKind
from gateway.protocol import jsonrpc
from gateway.protocol.outbox import Outbox
from gateway.protocol.session import Session
from gateway.protocol.tally import Tally

log: Final = structlog.get_logger(__name__)

_LIST_CHANGED: Final[Mapping[ListKind, str]] = {
    "tools": "notifications/tools/list_changed",
    "prompts": "notifications/prompts/list_changed",
    "resources": "notifications/resources/list_changed",
}
_UPDATED: Final = "notifications/resources/updated"

Scopes = frozenset[str] | None
"""What a caller may do; None is everything."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """One `subscriptions/listen` of the modern era: what it asked for, and what waits for it."""

    kinds: frozenset[ListKind]
    uris: frozenset[str]
    scopes: Scopes
    outbox: Outbox

    def takes(self, kind: ListKind) -> bool:
        return kind in self.kinds


@dataclass(frozen=True, slots=True)
class _Member:
    """A session as a subscriber: it takes whatever list changes once it is initialized."""

    session: Session

    @property
    def uris(self) -> frozenset[str]:
        return self.session.subscriptions

    @property
    def scopes(self) -> Scopes:
        return self.session.identity.scopes

    @property
    def outbox(self) -> Outbox:
        return self.session.outbox

    def takes(self, _kind: ListKind) -> bool:
        return self.session.is_initialized


Subscriber = Subscription | _Member


class Announcements:
    """Sessions of the legacy era, and subscriptions of the modern one."""

    def __init__(self, views: Views) -> None:
        self._views: Final = views
        self._sessions: Final[WeakSet[Session]] = WeakSet()
        """A session that nothing else holds is gone from here too."""
        self._subscriptions: Final[set[Subscription]] = set()
        self.tally: Final = Tally()
        self._is_closed = False

    def join(self, session: Session) -> None:
        session.outbox.tally = self.tally
        self._sessions.add(session)

    @contextmanager
    def listen(self, kinds: frozenset[ListKind], uris: frozenset[str], *, scopes: Scopes) -> Iterator[Subscription]:
        """A subscription, for as long as the context lasts."""
        subscription = Subscription(kinds=kinds, uris=uris, scopes=scopes, outbox=Outbox())
        subscription.outbox.tally = self.tally
        if self._is_closed:
            subscription.outbox.close()
        self._subscriptions.add(subscription)
        try:
            yield subscription
        finally:
            self._subscriptions.discard(subscription)

    def catalog_changed(self, old: Catalog, new: Catalog) -> None:
        """Announce each list that a client would now see differently, and each watched resource that was written."""
        for scopes, subscribers in self._by_scopes().items():
            self._views_changed(self._views.of(old, scopes), self._views.of(new, scopes), subscribers)

    def identified(self, session: Session, identity: Identity, catalog: Catalog) -> None:
        """A session's client has shown another credential: what it sees may be more now, or less."""
        before = self._views.of(catalog, session.identity.scopes)
        session.identity = identity
        after = self._views.of(catalog, identity.scopes)
        self._views_changed(before, after, [_Member(session)])

    def list_changed(self, kind: ListKind) -> None:
        """Tell everybody."""
        _announce(kind, self._subscribers())

    def resource_updated(self, uri: str, catalog: Catalog) -> None:
        """Tell those who subscribed to `uri` and may read it."""
        found = catalog.resource(uri)
        needed = frozenset[str]() if found is None else found[0].access.scopes
        _update(uri, [each for each in self._subscribers() if each.scopes is None or needed <= each.scopes])

    def close(self) -> None:
        """End every subscription, now and to come: the daemon is about to stop."""
        self._is_closed = True
        for subscription in self._subscriptions:
            subscription.outbox.close()

    def _subscribers(self) -> Iterator[Subscriber]:
        return chain(self._subscriptions, map(_Member, self._sessions))

    def _by_scopes(self) -> Mapping[Scopes, list[Subscriber]]:
        groups: defaultdict[Scopes, list[Subscriber]] = defaultdict(list)
        for subscriber in self._subscribers():
            groups[subscriber.scopes].append(subscriber)
        return groups

    @staticmethod
    def _views_changed(old: Catalog, new: Catalog, subscribers: list[Subscriber]) -> None:
        for kind in _LIST_CHANGED:
            if old.fingerprints.get(kind) != new.fingerprints.get(kind):
                _announce(kind, subscribers)
        for uri in frozenset().union(*(each.uris for each in subscribers)):
            if _version(uri, old) != _version(uri, new):
                _update(uri, subscribers)


def _version(uri: str, catalog: Catalog) -> str | None:
    """What `uri` was, or that nothing served it: whoever reads it again finds out."""
    found = catalog.resource(uri)
    return None if found is None else found[0].version


def _announce(kind: ListKind, subscribers: Iterable[Subscriber]) -> None:
    method = _LIST_CHANGED[kind]
    outboxes = [each.outbox for each in subscribers if each.takes(kind)]
    _put(outboxes, method, {"jsonrpc": jsonrpc.VERSION, "method": method})


def _update(uri: str, subscribers: Iterable[Subscriber]) -> None:
    outboxes = [each.outbox for each in subscribers if uri in each.uris]
    _put(outboxes, f"{_UPDATED} {uri}", {"jsonrpc": jsonrpc.VERSION, "method": _UPDATED, "params": {"uri": uri}})


def _put(outboxes: list[Outbox], key: str, message: JsonObject) -> None:
    dropped = sum(not outbox.put(key, message) for outbox in outboxes)
    if dropped:
        log.warning("announcements dropped: nobody reads them", method=message["method"], clients=dropped)
