"""Notifies clients of changes of the catalog: puts each notification into the right outboxes.

A client is told of a list only if what it sees of it has changed, and of a resource only if it may read it.
"""

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
from gateway.catalog.caller_catalogs import CallerCatalogs
from gateway.catalog.catalog import Catalog
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
"""What a caller may do; None is everything."""


async def nothing() -> None:
    """Do nothing."""


class Subscription(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """One `subscriptions/listen` of the modern era: what it asked for, and what waits for it."""

    kinds: frozenset[ListKind]
    subscriptions: frozenset[str]
    """URIs."""
    task_ids: frozenset[str]
    scopes: Scopes
    view: str | None
    outbox: Outbox
    told_of_tasks: dict[str, tuple[int, float]] = msgspec.field(default_factory=dict)
    """By task id, the version and the time of what was queued last."""

    def tell_task(self, task: Task, state: JsonObject) -> None:
        """Queue the state of a task (`DetailedTask`), unless a newer one was; in place of an older one."""
        # Whoever asks a store for a task waits, and a change may come in between: its answer is the older one then.
        stamp = (task.version, task.updated)
        if stamp < self.told_of_tasks.get(task.id, stamp):
            return
        self.told_of_tasks[task.id] = stamp
        message = {"jsonrpc": jsonrpc.VERSION, "method": _TASK, "params": state}
        self.outbox.put(f"{_TASK} {task.id}", message, is_state=True)

    def takes(self, kind: ListKind) -> bool:
        return kind in self.kinds

    def end(self) -> None:
        """Let its request be answered; what still waits is for somebody who may no longer have it."""
        self.outbox.messages.clear()
        self.outbox.close()


Subscriber = Subscription | Session


class ReplicaAgreement(Protocol):
    """Whether the other replicas, which serve the same clients, offer the same lists."""

    def holds_announcements(self) -> bool:
        """Called when the catalog has changed. True: `ChangeNotifier.announce_held` is called once all agree."""

    async def wait(self) -> None:
        """Wait, not for long, until all serve the lists of this one."""


class ChangeNotifier:
    """Sessions of the legacy era, and subscriptions of the modern one."""

    def __init__(
        self,
        parts: CallerCatalogs,
        *,
        events: Events,
        agreement: ReplicaAgreement | None = None,
        upstreams_watch: Callable[[], Awaitable[None]] = nothing,
    ) -> None:
        """Know of nobody yet.

        Args:
            parts: what each caller sees of a catalog.
            events: told of sessions, and of what is watched.
            agreement: of the replicas; None: there is one process.
            upstreams_watch: waits, not for long, until upstreams report updates of what is watched.
        """
        self._parts: Final = parts
        self._events: Final = events
        self._agreement: Final = agreement
        self.upstreams_watch: Final = upstreams_watch
        self._sessions: Final[WeakSet[Session]] = WeakSet()
        """A session that nothing else holds is gone from here too."""
        self._subscriptions: Final[set[Subscription]] = set()
        self._by_handler: Final[dict[asyncio.Task[Json] | None, Subscription]] = {}
        """By the task that serves the request."""
        self._of_tasks: Final[defaultdict[str, set[Subscription]]] = defaultdict(set)
        """By task id."""
        self.counters: Final = NotificationCounters()
        self._held: Catalog | None = None
        """The catalog that clients know, while changes of it are held back."""
        self._newest: Catalog | None = None
        self._is_closed = False

    def add_session(self, session: Session) -> None:
        session.outbox.count_with(self.counters)
        session.add_end_callback(self._session_ended)
        self._sessions.add(session)

    def session_opened(self, session: Session) -> None:
        """Called by bindings once a session that begins, or is taken over from another process, has its id."""
        self._events.publish(SessionOpened(session.id))

    def _session_ended(self, session_id: str) -> None:
        self._events.publish(SessionEnded(session_id))

    def roots_changed(self, session_id: str) -> None:
        self._events.publish(RootsChanged(session_id))

    def watch_changed(self) -> None:
        self._events.publish(WatchedResourcesChanged())

    def tell_others(self, what: Change, kind: ListKind, name: str) -> None:
        """Have other replicas follow what was changed here at run time."""
        self._events.publish(PluginChange(what, kind, name))

    async def others_follow(self) -> None:
        """Wait, not for long, until other replicas serve the lists of this one."""
        if self._agreement is not None:
            await self._agreement.wait()

    def restore_session(self, session: Session, catalog: Catalog, *, told: Mapping[str, str]) -> None:
        """Take over a session of an earlier process, and tell it of the lists that differ from what it was told.

        What became of watched resources meanwhile nobody knows, so their client reads the list again.
        """
        self.add_session(session)
        offered = self._parts.of(catalog, session.identity.scopes, view=session.view)
        for kind in _LIST_CHANGED:
            is_stale = told.get(kind) != offered.fingerprints.get(kind)
            if is_stale or (kind == "resources" and session.subscriptions):
                _announce(kind, [session])

    def told(self, session: Session, catalog: Catalog, *, before: Mapping[str, str]) -> dict[str, str]:
        """The fingerprint of each list as a session's client was told of it; `before` where that is still to come."""
        if session.view is not None and session.view not in catalog.views:
            return dict(before)  # a reload has just taken it away, and the session ends
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
        """A subscription of somebody at a view, for as long as the context lasts."""
        subscription = Subscription(
            kinds=kinds, subscriptions=uris, task_ids=task_ids, scopes=scopes, view=view, outbox=Outbox()
        )
        subscription.outbox.count_with(self.counters)
        # `close` may have come while the request was on its way here, and ends only what it finds.
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
                    # An empty set for each task that was ever followed would stay as long as the process.
                    del self._of_tasks[task_id]

    def end_subscription(self, handler: asyncio.Task[Json]) -> bool:
        """End the subscription that this task serves, with its result; False if the task serves none."""
        if (subscription := self._by_handler.get(handler)) is None:
            return False
        subscription.end()
        return True

    def catalog_changed(self, old: Catalog, new: Catalog) -> None:
        """Announce each list that a client would now see differently, and each watched resource that was written.

        Where other processes do not serve the new catalog yet, that waits for `announce_held`. Subscriptions of views
        that are gone end.
        """
        for subscription in self._subscriptions:
            if subscription.view is not None and subscription.view not in new.views:
                subscription.end()
        # While changes are held back clients know the catalog of before the first, however many reloads follow.
        self._held, self._newest = self._held or old, new
        if self._agreement is None or not self._agreement.holds_announcements():
            self.announce_held()

    def announce_held(self) -> None:
        """Announce what has changed since the last announcement."""
        old, new = self._held, self._newest
        self._held = self._newest = None
        if old is None or new is None:
            return
        for (scopes, view), subscribers in self._by_part().items():
            if view is None or (view in old.views and view in new.views):  # those of one that is gone end
                before, after = (self._parts.of(each, scopes, view=view) for each in (old, new))
                self._part_changed(before, after, subscribers)

    def identity_changed(self, session: Session, identity: Identity, catalog: Catalog) -> None:
        """A session's client has shown another credential: what it sees may be more now, or less."""
        before = session.identity
        session.identify(identity)
        if session.view is None or session.view in catalog.views:
            old, new = (self._parts.of(catalog, each.scopes, view=session.view) for each in (before, identity))
            self._part_changed(old, new, [session])

    def list_changed(self, kind: ListKind) -> None:
        """Notify every subscriber of the list."""
        _announce(kind, self._subscribers())

    def resource_updated(self, uri: str, catalog: Catalog) -> None:
        """Tell those who subscribed to `uri` and may read it where they are."""
        found = catalog.resource(uri)
        needed = frozenset[str]() if found is None else found[0].access.scopes
        for (scopes, view), subscribers in self._by_part().items():
            # Anew for each update: a reload may have asked for more scopes since the subscription.
            may_read = scopes is None or needed <= scopes
            if may_read and (view is None or self._parts.of(catalog, scopes, view=view).resource(uri) is not None):
                _update(uri, subscribers)

    def of_task(self, task_id: str) -> Collection[Subscription]:
        """The subscriptions that name a task."""
        return self._of_tasks.get(task_id, ())

    @property
    def watched(self) -> frozenset[str]:
        """All URIs that somebody watches."""
        return frozenset().union(*(each.subscriptions for each in self._subscribers()))

    def close(self) -> None:
        """End every subscription, now and to come: the daemon is about to stop."""
        self._is_closed = True
        for subscription in self._subscriptions:
            # Not `end`: what waits is still for its subscriber, and is sent before the result.
            subscription.outbox.close()

    def _subscribers(self) -> Iterator[Subscriber]:
        return chain(self._subscriptions, self._sessions)

    def _by_part(self) -> Mapping[tuple[Scopes, str | None], list[Subscriber]]:
        """The subscribers by the part of the catalog that they see: their scopes, and their view."""
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
    """Return the version of the resource at `uri`; None where nothing serves it."""
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
        log.warning("announcements dropped: nobody reads them", method=message["method"], clients=dropped)
