"""Holds announcements of changed lists back until all replicas serve them.

Why: a client that is told of a change asks whichever replica its request comes to. One that has not followed its files
yet would answer with the older list, and nothing would tell that client again. So a replica that has swapped its
catalog says so, and announces once the others have followed, or after a while; if one follows later still, the lists
are announced again. A call that has switched a primitive is answered once the others have, too.
"""

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Final, Self

import msgspec

from gateway.background_tasks import BackgroundTasks
from gateway.catalog.store import CatalogStore
from gateway.errors import StoreAwayError
from gateway.events import Events
from gateway.plugin import ListKind
from gateway.state.replica import Replica

_KIND: Final = "catalog served"
_FOLLOW_SECONDS: Final = 5.0
"""How long announcements wait for others."""
_ANSWER_SECONDS: Final = 2.0
"""How long the answer of a call that switched something waits for others."""
_LISTS: Final[tuple[ListKind, ...]] = ("tools", "prompts", "resources")


class ServedCatalog(msgspec.Struct, frozen=True, kw_only=True):
    """A message that says which lists a replica serves."""

    replica: str
    fingerprints: Mapping[str, str] | None
    """By kind of list; None: it serves no more."""
    wants_reply: bool = False


class ReplicasAgreed(msgspec.Struct, frozen=True):
    """Event: all replicas serve the same lists, or have had their time; held announcements are due."""


class ListDiffered(msgspec.Struct, frozen=True):
    """Event: another replica has served an older form of a list; clients have to ask for it again."""

    kind: ListKind


class CatalogAgreement:
    """Implements `ReplicaAgreement`. The lists that the other replicas serve, compared with those of this one."""

    def __init__(self, replica: Replica, *, store: CatalogStore, events: Events) -> None:
        self._replica: Final = replica
        self._store: Final = store
        self._events: Final = events
        self._others: Final[dict[str, Mapping[str, str]]] = {}
        """Their fingerprints, by replica."""
        self._differing: frozenset[str] = frozenset()
        """Kinds of lists that another replica serves otherwise."""
        self._owed: frozenset[str] = frozenset()
        """Kinds of lists of which clients here may know an older form, from a replica that had not followed."""
        self._is_agreed: Final = asyncio.Event()
        self._is_agreed.set()
        self._following: asyncio.Task[None] | None = None
        self._tasks: Final = BackgroundTasks()
        replica.mailbox.on(_KIND, self._take)
        replica.store.on_return(lambda: self._say(wants_reply=True))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._tasks.cancel()
        if not self._replica.store.is_away:
            await self._say(is_over=True)

    def holds_announcements(self) -> bool:
        """Tell the others what is served here now. True: the announcement waits for them."""
        self._tasks.begin(self._say(), name="catalog agreement")
        self._compare()
        # Without the store nobody can be waited for: clients are told at once, as by a single process.
        if self._is_agreed.is_set() or self._replica.store.is_away:
            return False
        if self._following is None or self._following.done():
            self._following = self._tasks.begin(self._follow(), name="catalog agreement")
        return True

    async def _follow(self) -> None:
        """Announce what was held back, as soon as all serve the same, or when they have had their time."""
        with suppress(TimeoutError, StoreAwayError):
            async with asyncio.timeout(_FOLLOW_SECONDS):
                await self._forget_dead()
                await self._is_agreed.wait()
        # Before it announces: from here on `_compare` announces what differed until now.
        self._following = None
        self._events.publish(ReplicasAgreed())
        self._owed = self._differing

    async def wait(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(_ANSWER_SECONDS):
                await self._is_agreed.wait()

    async def _take(self, body: bytes) -> bytes:
        said = _DECODER.decode(body)
        if said.fingerprints is None:
            self._others.pop(said.replica, None)
        else:
            self._others[said.replica] = said.fingerprints
        self._compare()
        if said.wants_reply:
            await self._replica.mailbox.tell(said.replica, _KIND, self._own())
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
        """Wait for no replica that died without a word."""
        own = self._store.current.fingerprints
        for name in [name for name, other in self._others.items() if other != own]:
            if not await self._replica.mailbox.is_there(name):
                self._others.pop(name, None)
        self._compare()

    async def _say(self, *, wants_reply: bool = False, is_over: bool = False) -> None:
        with suppress(StoreAwayError):  # it is said when it is back
            await self._replica.mailbox.tell_all(_KIND, self._own(wants_reply=wants_reply, is_over=is_over))

    def _own(self, *, wants_reply: bool = False, is_over: bool = False) -> bytes:
        fingerprints = None if is_over else dict(self._store.current.fingerprints)
        return msgspec.msgpack.encode(
            ServedCatalog(replica=self._replica.name, fingerprints=fingerprints, wants_reply=wants_reply)
        )


_DECODER: Final = msgspec.msgpack.Decoder(ServedCatalog)
