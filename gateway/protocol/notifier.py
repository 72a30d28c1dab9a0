"""Notifies clients of changes to the lists and resources that the clients can access."""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import chain
from typing import Final, Protocol
from weakref import WeakSet

import msgspec
import structlog

from gateway.access.identity import Identity
from gateway.catalog.catalog import CallerCatalogs, Catalog
from gateway.catalog.store import CatalogStore
from gateway.events import (
    Change,
    Events,
    PluginChange,
    RootsChanged,
    SessionEnded,
    SessionOpened,
    WatchedResourcesChanged,
)
from gateway.json_types import Json, JsonObject
from gateway.plugin import ListKind
from gateway.protocol.outbox import NotificationCounters, Outbox
from gateway.protocol.session import Session
from gateway.tasks.task import Task
from gateway.wire import jsonrpc

log: Final = structlog.get_logger(__name__)

_LIST_CHANGED: Final[Mapping[ListKind, str]] = {
    "tools": "notifications/tools/list_changed",
    "prompts": "notifications/prompts/list_changed",
    "resources": "notifications/resources/list_changed",
}
_UPDATED: Final = "notifications/resources/updated"
_TASK: Final = "notifications/tasks"

Scopes = frozenset[str] | None
"""A set of scopes. None means all scopes."""


async def nothing() -> None:
    pass


class Subscription(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """One `subscriptions/listen` request."""

    kinds: frozenset[ListKind]
    subscriptions: frozenset[str]
    task_ids: frozenset[str]
    scopes: Scopes
    view: str | None
    outbox: Outbox
    sent_task_stamps: dict[str, tuple[int, float]] = msgspec.field(default_factory=dict)
    """The version and update time of the newest queued state, by task id."""

    def tell_task(self, task: Task, state: JsonObject) -> None:
        """Queue the state of a task (a `DetailedTask`), and replace an older queued state of the task."""
        # Ignore older states, because a change may arrive while an older state is read from the store.
        stamp = (task.version, task.updated)
        if stamp < self.sent_task_stamps.get(task.id, stamp):
            return
        self.sent_task_stamps[task.id] = stamp
        message = {"jsonrpc": jsonrpc.VERSION, "method": _TASK, "params": state}
        self.outbox.put(f"{_TASK} {task.id}", message, is_state=True)

    def takes(self, kind: ListKind) -> bool:
        return kind in self.kinds

    def end(self) -> None:
        """End the subscription, and drop queued messages that the caller may no longer be allowed to see."""
        self.outbox.messages.clear()
        self.outbox.close()


Subscriber = Subscription | Session


class ReplicaAgreement(Protocol):
    def holds_announcements(self) -> bool:
        """Return whether to delay announcements until `ChangeNotifier.announce_held` is called."""

    async def wait(self) -> None:
        """Wait briefly until all replicas serve the same lists as this replica."""


class ChangeNotifier:
    def __init__(
        self,
        store: CatalogStore,
        parts: CallerCatalogs,
        *,
        events: Events,
        agreement: ReplicaAgreement | None = None,
        upstreams_watch: Callable[[], Awaitable[None]] = nothing,
    ) -> None:
        """`upstreams_watch` waits briefly until upstream servers have confirmed subscriptions to watched resources."""
        self._store: Final = store
        self._parts: Final = parts
        self._events: Final = events
        self._agreement: Final = agreement
        self.upstreams_watch: Final = upstreams_watch
        self._sessions: Final[WeakSet[Session]] = WeakSet()
        self._subscriptions: Final[set[Subscription]] = set()
        self._by_handler: Final[dict[asyncio.Task[Json] | None, Subscription]] = {}
        self._of_tasks: Final[defaultdict[str, set[Subscription]]] = defaultdict(set)
        self.counters: Final = NotificationCounters()
        self._held: Catalog | None = None
        """The catalog that clients know while announcements are delayed."""
        self._newest: Catalog | None = None
        self._is_closed = False
        store.subscribe(self.catalog_changed)

    def add_session(self, session: Session) -> None:
        session.outbox.count_with(self.counters)
        session.add_end_callback(self._session_ended)
        self._sessions.add(session)

    def session_opened(self, session: Session) -> None:
        """Publish `SessionOpened`. Transports call this method once the session has its final id."""
        self._events.publish(SessionOpened(session.id))

    def _session_ended(self, session_id: str) -> None:
        self._events.publish(SessionEnded(session_id))

    def roots_changed(self, session_id: str) -> None:
        self._events.publish(RootsChanged(session_id))

    def watch_changed(self) -> None:
        self._events.publish(WatchedResourcesChanged())

    def tell_others(self, what: Change, kind: ListKind, name: str) -> None:
        self._events.publish(PluginChange(what, kind, name))

    async def others_follow(self) -> None:
        """Wait briefly until other replicas serve the same lists as this replica."""
        if self._agreement is not None:
            await self._agreement.wait()

    def restore_session(self, session: Session, *, known: Mapping[str, str]) -> None:
        """Add a session of another process, and announce the lists whose fingerprints differ from `known`.

        If the session has subscriptions, always announce `resources`, because the client may have missed updates.
        """
        self.add_session(session)
        offered = self._parts.of(self._store.current, session.identity.scopes, view=session.view)
        for kind in _LIST_CHANGED:
            is_stale = known.get(kind) != offered.fingerprints.get(kind)
            if is_stale or (kind == "resources" and session.subscriptions):
                _announce(kind, [session])

    def known_fingerprints(self, session: Session, *, before: Mapping[str, str]) -> dict[str, str]:
        """Return the list fingerprints that the client knows. While a change is queued, the client knows `before`."""
        catalog = self._store.current
        if session.view is not None and session.view not in catalog.views:
            return dict(before)  # a reload has removed the view, so the session is about to end
        held = self._held
        known = catalog if held is None or (session.view is not None and session.view not in held.views) else held
        offered = self._parts.of(known, session.identity.scopes, view=session.view).fingerprints
        waiting = session.outbox.messages
        return {
            kind: fingerprint
            for kind, method in _LIST_CHANGED.items()
            if (fingerprint := (before if method in waiting else offered).get(kind)) is not None
        }

    @contextmanager
    def listen(
        self,
        kinds: frozenset[ListKind],
        uris: frozenset[str],
        *,
        scopes: Scopes,
        view: str | None = None,
        task_ids: frozenset[str] = frozenset(),
    ) -> Iterator[Subscription]:
        subscription = Subscription(
            kinds=kinds, subscriptions=uris, task_ids=task_ids, scopes=scopes, view=view, outbox=Outbox()
        )
        subscription.outbox.count_with(self.counters)
        # Close the outbox here too, because `close` ends only existing subscriptions.
        if self._is_closed:
            subscription.outbox.close()
        self._subscriptions.add(subscription)
        handler = asyncio.current_task()
        self._by_handler[handler] = subscription
        for task_id in task_ids:
            self._of_tasks[task_id].add(subscription)
        if uris:
            self.watch_changed()
        try:
            yield subscription
        finally:
            self._subscriptions.discard(subscription)
            self._by_handler.pop(handler, None)
            if uris:
                self.watch_changed()
            for task_id in task_ids:
                self._of_tasks[task_id].discard(subscription)
                if not self._of_tasks[task_id]:
                    del self._of_tasks[task_id]

    def end_subscription(self, handler: asyncio.Task[Json]) -> bool:
        """End the subscription that an asyncio task handles. Return False if the task handles no subscription."""
        if (subscription := self._by_handler.get(handler)) is None:
            return False
        subscription.end()
        return True

    def catalog_changed(self, old: Catalog, new: Catalog) -> None:
        """Announce changed lists and watched resources, and end subscriptions of removed views."""
        for subscription in self._subscriptions:
            if subscription.view is not None and subscription.view not in new.views:
                subscription.end()
        # Keep the oldest catalog, because clients still know the catalog from before the first delayed change.
        self._held, self._newest = self._held or old, new
        if self._agreement is None or not self._agreement.holds_announcements():
            self.announce_held()

    def announce_held(self) -> None:
        old, new = self._held, self._newest
        self._held = self._newest = None
        if old is None or new is None:
            return
        for (scopes, view), subscribers in self._by_part().items():
            if view is None or (view in old.views and view in new.views):
                before, after = (self._parts.of(each, scopes, view=view) for each in (old, new))
                self._part_changed(before, after, subscribers)

    def identity_changed(self, session: Session, identity: Identity) -> None:
        """Set a session's identity, and announce the lists that change with the identity's scopes."""
        before, catalog = session.identity, self._store.current
        if identity == before:
            return
        session.identify(identity)
        if session.view is None or session.view in catalog.views:
            old, new = (self._parts.of(catalog, each.scopes, view=session.view) for each in (before, identity))
            self._part_changed(old, new, [session])

    def list_changed(self, kind: ListKind) -> None:
        _announce(kind, self._subscribers())

    def resource_updated(self, uri: str) -> None:
        """Notify the subscribers that are allowed to read the resource."""
        catalog = self._store.current
        found = catalog.resource(uri)
        needed = frozenset[str]() if found is None else found[0].access.scopes
        for (scopes, view), subscribers in self._by_part().items():
            # Check the scopes again, because a reload may have changed them.
            may_read = scopes is None or needed <= scopes
            if may_read and (view is None or self._parts.of(catalog, scopes, view=view).resource(uri) is not None):
                _update(uri, subscribers)

    def of_task(self, task_id: str) -> Collection[Subscription]:
        return self._of_tasks.get(task_id, ())

    @property
    def watched(self) -> frozenset[str]:
        return frozenset().union(*(each.subscriptions for each in self._subscribers()))

    def close(self) -> None:
        self._is_closed = True
        for subscription in self._subscriptions:
            # Messages that are already queued are still sent.
            subscription.outbox.close()

    def _subscribers(self) -> Iterator[Subscriber]:
        return chain(self._subscriptions, self._sessions)

    def _by_part(self) -> Mapping[tuple[Scopes, str | None], list[Subscriber]]:
        groups: defaultdict[tuple[Scopes, str | None], list[Subscriber]] = defaultdict(list)
        for subscriber in self._subscribers():
            groups[subscriber.scopes, subscriber.view].append(subscriber)
        return groups

    @staticmethod
    def _part_changed(old: Catalog, new: Catalog, subscribers: list[Subscriber]) -> None:
        for kind in _LIST_CHANGED:
            if old.fingerprints.get(kind) != new.fingerprints.get(kind):
                _announce(kind, subscribers)
        for uri in frozenset().union(*(each.subscriptions for each in subscribers)):
            if _version(uri, old) != _version(uri, new):
                _update(uri, subscribers)


def _version(uri: str, catalog: Catalog) -> str | None:
    found = catalog.resource(uri)
    return None if found is None else found[0].version


def _announce(kind: ListKind, subscribers: Iterable[Subscriber]) -> None:
    method = _LIST_CHANGED[kind]
    outboxes = [each.outbox for each in subscribers if each.takes(kind)]
    _put(outboxes, method, {"jsonrpc": jsonrpc.VERSION, "method": method})


def _update(uri: str, subscribers: Iterable[Subscriber]) -> None:
    outboxes = [each.outbox for each in subscribers if uri in each.subscriptions]
    _put(outboxes, f"{_UPDATED} {uri}", {"jsonrpc": jsonrpc.VERSION, "method": _UPDATED, "params": {"uri": uri}})


def _put(outboxes: list[Outbox], key: str, message: JsonObject) -> None:
    dropped = sum(not outbox.put(key, message) for outbox in outboxes)
    if dropped:
        log.warning("notifications dropped: clients read too slowly", method=message["method"], clients=dropped)
