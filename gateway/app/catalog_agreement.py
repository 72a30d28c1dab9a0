"""Delays announcements of changed lists until all replicas serve the new lists.

A notified client can reach any replica with its next request. A replica that has not reloaded yet would return the old
list, and the client would miss the change. Replicas therefore exchange the fingerprints of their lists, and announce
changes once all fingerprints are equal or a timeout has passed. If a replica catches up after the timeout, the changed
lists are announced again.
"""

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Final, Self

import msgspec

from gateway.background_tasks import BackgroundTasks
from gateway.catalog.store import CatalogStore
from gateway.errors import StoreUnavailableError
from gateway.events import Events
from gateway.plugin import ListKind
from gateway.state.replica import Replica

_KIND: Final = "catalog served"
_FOLLOW_SECONDS: Final = 5.0
_RESPONSE_SECONDS: Final = 2.0
"""The maximum time that a call waits for other replicas after enabling or disabling a primitive."""
_LISTS: Final[tuple[ListKind, ...]] = ("tools", "prompts", "resources")


class ServedCatalog(msgspec.Struct, frozen=True, kw_only=True):
    replica: str
    fingerprints: Mapping[str, str] | None
    """Fingerprints by list, or None if the replica has stopped."""
    wants_reply: bool = False


class ReplicasAgreed(msgspec.Struct, frozen=True):
    """Event: held announcements can be sent, because all replicas agree or the timeout has passed."""


class ListDiffered(msgspec.Struct, frozen=True):
    """Event: a replica has caught up, and clients could have read an old list from that replica before."""

    kind: ListKind


class CatalogAgreement:
    def __init__(self, replica: Replica, *, store: CatalogStore, events: Events) -> None:
        self._replica: Final = replica
        self._store: Final = store
        self._events: Final = events
        self._others: Final[dict[str, Mapping[str, str]]] = {}
        self._differing: frozenset[str] = frozenset()
        """Lists of which another replica serves a different version."""
        self._owed: frozenset[str] = frozenset()
        """Lists to announce again, because clients could have read an old version."""
        self._is_agreed: Final = asyncio.Event()
        self._is_agreed.set()
        self._following: asyncio.Task[None] | None = None
        self._tasks: Final = BackgroundTasks()
        replica.mailbox.on(_KIND, self._take)
        replica.store.on_return(lambda: self._publish(wants_reply=True))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._tasks.cancel()
        if not self._replica.store.is_unavailable:
            await self._publish(is_over=True)

    def holds_announcements(self) -> bool:
        self._tasks.begin(self._publish(), name="catalog agreement")
        self._compare()
        # Replicas cannot agree without the store, so clients are notified at once.
        if self._is_agreed.is_set() or self._replica.store.is_unavailable:
            return False
        if self._following is None or self._following.done():
            self._following = self._tasks.begin(self._follow(), name="catalog agreement")
        return True

    async def _follow(self) -> None:
        with suppress(TimeoutError, StoreUnavailableError):
            async with asyncio.timeout(_FOLLOW_SECONDS):
                await self._forget_dead()
                await self._is_agreed.wait()
        # From here on, `_compare` announces changes.
        self._following = None
        self._events.publish(ReplicasAgreed())
        self._owed = self._differing

    async def wait(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(_RESPONSE_SECONDS):
                await self._is_agreed.wait()

    async def _take(self, body: bytes) -> bytes:
        message = _DECODER.decode(body)
        if message.fingerprints is None:
            self._others.pop(message.replica, None)
        else:
            self._others[message.replica] = message.fingerprints
        self._compare()
        if message.wants_reply:
            await self._replica.mailbox.tell(message.replica, _KIND, self._message())
        return b""

    def _compare(self) -> None:
        own = self._store.current.fingerprints
        self._differing = frozenset(
            kind for kind in _LISTS if any(other.get(kind) != own.get(kind) for other in self._others.values())
        )
        if self._differing:
            self._is_agreed.clear()
        else:
            self._is_agreed.set()
        if self._following is None:
            self._announce(self._owed - self._differing)
            self._owed = self._differing

    def _announce(self, kinds: Iterable[str]) -> None:
        for kind in _LISTS:
            if kind in kinds:
                self._events.publish(ListDiffered(kind))

    async def _forget_dead(self) -> None:
        own = self._store.current.fingerprints
        for name in [name for name, other in self._others.items() if other != own]:
            if not await self._replica.mailbox.is_there(name):
                self._others.pop(name, None)
        self._compare()

    async def _publish(self, *, wants_reply: bool = False, is_over: bool = False) -> None:
        with suppress(StoreUnavailableError):
            await self._replica.mailbox.tell_all(_KIND, self._message(wants_reply=wants_reply, is_over=is_over))

    def _message(self, *, wants_reply: bool = False, is_over: bool = False) -> bytes:
        fingerprints = None if is_over else dict(self._store.current.fingerprints)
        return msgspec.msgpack.encode(
            ServedCatalog(replica=self._replica.name, fingerprints=fingerprints, wants_reply=wants_reply)
        )


_DECODER: Final = msgspec.msgpack.Decoder(ServedCatalog)
