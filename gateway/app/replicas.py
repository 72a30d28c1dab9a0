"""Shares run-time changes with other replicas, and delays announcements until all replicas serve the same lists."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

import msgspec
import structlog

from gateway.background_tasks import BackgroundTasks
from gateway.catalog.store import CatalogStore
from gateway.errors import ExecutionError, StoreUnavailableError
from gateway.events import Events, PluginChange, SignInsChanged
from gateway.json_types import Json
from gateway.plugin import ListKind
from gateway.protocol.notifier import ChangeNotifier
from gateway.repeated_warnings import RepeatedWarning
from gateway.state.replica import Replica

log: Final = structlog.get_logger(__name__)

_FOLLOW_SECONDS: Final = 5.0
_POLL_SECONDS: Final = 1.0
_HELD_POLL_SECONDS: Final = 0.05
_EXCHANGE: Final = """
redis.call('HSET', KEYS[1], unpack(ARGV))
redis.call('EXPIRE', KEYS[1], 60)
return redis.call('HGETALL', KEYS[1])
"""
"""Writes fingerprints, and returns the fingerprints of all replicas. A field is a list and the name of a replica."""
_RESPONSE_SECONDS: Final = 2.0
"""How many seconds a call waits for other replicas after it has enabled or disabled a tool, resource or prompt."""
_LISTS: Final[dict[str, ListKind]] = {"tools": "tools", "prompts": "prompts", "resources": "resources"}
_ANNOUNCEMENT: Final = "announcement"
_SIGN_IN: Final = "sign-in"
# This is several refresh intervals, so that one lost refresh does not enable a primitive again.
_KEPT_SECONDS: Final = 60
_REFRESH_SECONDS: Final = 20.0
_SWITCHES: Final = frozenset({"enabled", "disabled"})


class AnnouncementsDue(msgspec.Struct, frozen=True):
    """Published when delayed announcements must be sent, or when the lists in `repeated` must be announced again.

    Delayed announcements are due once all replicas agree, or after a timeout.
    """

    repeated: Sequence[ListKind] = ()
    """Lists to announce again. Clients could have read an old version from a replica that had not reloaded yet."""


def announce(event: AnnouncementsDue, notifier: ChangeNotifier) -> None:
    if not event.repeated:
        notifier.announce_held()
    for kind in event.repeated:
        notifier.list_changed(kind)


class CatalogAgreement:
    """Delays announcements of changed lists until all replicas serve the new lists.

    After an announcement, a client can send its next request to any replica. A replica that has not reloaded yet would
    return the old list. Replicas therefore write the fingerprints of their lists to the store. Changes are announced
    once all fingerprints are equal, or after a timeout. If a replica catches up after the timeout, the changed lists
    are announced again.
    """

    def __init__(self, replica: Replica, *, store: CatalogStore, events: Events) -> None:
        self._replica: Final = replica
        self._store: Final = store
        self._events: Final = events
        self._key: Final = f"{replica.store.prefix}catalogs"
        self._held_until: float | None = None
        """The time of the event loop at which delayed changes are announced. None if no changes are delayed."""
        self._has_changed: Final = asyncio.Event()
        self._is_agreed: Final = asyncio.Event()
        self._is_agreed.set()
        self._tasks: Final = BackgroundTasks()
        self._tasks.begin(self._follow(), name="catalog agreement")

    async def close(self) -> None:
        await self._tasks.cancel()
        if not self._replica.store.is_unavailable:
            with suppress(StoreUnavailableError):
                fields = [f"{kind} {self._replica.name}" for kind in _LISTS]
                await self._replica.store.command("HDEL", self._key, *fields)

    def holds_announcements(self) -> bool:
        self._has_changed.set()
        # Replicas cannot agree without the store, so clients are notified at once.
        if self._replica.store.is_unavailable:
            return False
        self._is_agreed.clear()
        self._held_until = self._held_until or asyncio.get_running_loop().time() + _FOLLOW_SECONDS
        return True

    async def wait(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(_RESPONSE_SECONDS):
                await self._is_agreed.wait()

    async def _follow(self) -> None:
        owed: frozenset[ListKind] = frozenset()
        failure = RepeatedWarning()
        while True:
            self._has_changed.clear()
            differing: frozenset[ListKind] = frozenset()
            try:
                differing = await self._differing()
                failure.reset()
            except StoreUnavailableError:
                pass
            except Exception:  # Boundary: an error of Redis must not delay all later announcements forever
                if failure.is_due():
                    log.exception("lists not compared with other replicas")
            if self._has_changed.is_set():
                continue
            if not differing:
                self._is_agreed.set()
            if repeated := owed - differing:
                self._events.publish(AnnouncementsDue(sorted(repeated)))
                owed &= differing
            if self._held_until is not None and (
                not differing or asyncio.get_running_loop().time() >= self._held_until
            ):
                self._held_until = None
                self._events.publish(AnnouncementsDue())
            if self._held_until is None:
                owed = differing  # clients could read an old version of these lists
            with suppress(TimeoutError):
                async with asyncio.timeout(_POLL_SECONDS if self._held_until is None else _HELD_POLL_SECONDS):
                    await self._has_changed.wait()

    async def _differing(self) -> frozenset[ListKind]:
        """Write the fingerprints of this replica. Return the lists of which a running replica has another version."""
        own = {kind: self._store.current.fingerprints.get(kind, "") for kind in _LISTS.values()}
        values = [part for kind, mark in own.items() for part in (f"{kind} {self._replica.name}", mark)]
        found = await self._replica.store.run(_EXCHANGE, [self._key], *values)
        differing: set[ListKind] = set()
        for field, mark in zip(found[::2], found[1::2], strict=True):
            kind, _, name = field.decode().partition(" ")
            known = _LISTS.get(kind)
            if known is None or mark.decode() == own[known]:
                continue
            if await self._replica.mailbox.is_there(name):
                differing.add(known)
            else:
                await self._replica.store.command("HDEL", self._key, field)
        return frozenset(differing)


class SharedChanges:
    """Tells other replicas about sign-ins of users, and about changes that plugins make at run time.

    The store records which tools, resources and prompts plugins have enabled or disabled. Replicas that start later
    read this state. After concurrent changes, all replicas apply the state in the store.
    """

    def __init__(self, replica: Replica, *, store: CatalogStore, notifier: ChangeNotifier, events: Events) -> None:
        self._replica: Final = replica
        self._store: Final = store
        self._notifier: Final = notifier
        self._events: Final = events
        self._key: Final = f"{replica.store.prefix}switched"
        self._in_order: Final = asyncio.Lock()
        self._tasks: Final = BackgroundTasks()
        events.subscribe(PluginChange, self.tell)
        events.subscribe(SignInsChanged, self._tell_of_sign_in)
        replica.mailbox.on(_ANNOUNCEMENT, self._take)
        replica.mailbox.on(_SIGN_IN, self._take_sign_in)
        replica.store.on_return(self._take_disabled)
        self._tasks.begin(self._refresh(), name="shared changes")

    async def close(self) -> None:
        await self._tasks.cancel()

    def tell(self, change: PluginChange) -> None:
        self._tasks.begin(self._tell(change.what, change.kind, change.name), name="shared changes")

    def _tell_of_sign_in(self, change: SignInsChanged) -> None:
        if not change.is_of_replica:
            self._tasks.begin(self._send_sign_in(change.entry), name="shared changes")

    async def _send_sign_in(self, entry: str) -> None:
        # If the message is lost, other replicas find the sign-in when they next connect to the upstream server.
        with suppress(StoreUnavailableError):
            await self._replica.mailbox.tell_all(_SIGN_IN, entry.encode())

    async def _take_sign_in(self, entry: bytes) -> bytes:
        self._events.publish(SignInsChanged(entry.decode(), is_of_replica=True))
        return b""

    async def _tell(self, what: str, kind: str, name: str) -> None:
        try:
            # Send one change at a time, because concurrent commands may arrive in a different order.
            async with self._in_order:
                if what in _SWITCHES:
                    # Store the state before sending it, because a replica may start between these two steps.
                    await self._keep("HSET", f"{kind} {name}", what)
                await self._replica.mailbox.tell_all(_ANNOUNCEMENT, f"{what} {kind} {name}".encode())
                if what in _SWITCHES:
                    # Apply the stored state, because another replica could have stored a newer state.
                    await self._switch(what, kind, name)
        except StoreUnavailableError as error:
            log.warning("change not sent to other replicas", what=what, name=name, reason=error.message)

    async def _take(self, body: bytes) -> bytes:
        # The name comes last because it may contain spaces.
        what, kind, name = body.decode().split(" ", 2)
        if what in _SWITCHES:
            await self._switch(what, kind, name)
        else:
            self._apply(what, kind, name)
        return b""

    async def _switch(self, what: str, kind: str, name: str) -> None:
        kept = await self._replica.store.command("HGET", self._key, f"{kind} {name}")
        self._apply(what if kept is None else kept.decode(), kind, name)

    def _apply(self, what: str, kind: str, name: str) -> None:
        with suppress(ExecutionError):  # the primitive does not exist here yet
            self._changes[what](_LISTS[kind], name)

    @property
    def _changes(self) -> dict[str, Callable[[ListKind, str], None]]:
        return {
            "changed": lambda kind, _: self._notifier.list_changed(kind),
            "updated": lambda _, uri: self._updated(uri),
            "enabled": self._store.enable,
            "disabled": self._store.disable,
        }

    def _updated(self, uri: str) -> None:
        for name in self._store.current.uris_of(uri):
            self._notifier.resource_updated(name)

    async def _take_disabled(self) -> None:
        found = await self._replica.store.command("HGETALL", self._key)
        for field, what in found.items():
            if what == b"disabled":
                self._apply("disabled", *field.decode().split(" ", 1))

    async def _refresh(self) -> None:
        while True:
            await asyncio.sleep(_REFRESH_SECONDS)
            for kind, name in self._store.disabled:
                with suppress(StoreUnavailableError):
                    # HSETNX keeps the stored value if another replica has enabled the primitive.
                    if await self._keep("HSETNX", f"{kind} {name}", "disabled"):
                        # The store had lost the value, so other replicas could have missed the change.
                        await self._replica.mailbox.tell_all(_ANNOUNCEMENT, f"disabled {kind} {name}".encode())

    async def _keep(self, command: str, field: str, what: str) -> Json:
        answer = await self._replica.store.command(command, self._key, field, what)
        await self._replica.store.command("EXPIRE", self._key, _KEPT_SECONDS)
        return answer
