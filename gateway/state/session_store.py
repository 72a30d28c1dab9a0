"""The interface of what stores that which changes of a legacy session after `initialize`, and the store in memory.

Records are kept by the nonce of the session's id, which carries the rest. A record is written when it changes, and with
many others when the session was used; never for a plain call.
"""

import time
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, Protocol

import msgspec

from gateway.bounded_map import BoundedMap


class SteadyClock:
    def __init__(
        self, *, system: Callable[[], float] = time.time, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._system: Final = system
        self._monotonic: Final = monotonic
        self._last = system()
        self._last_monotonic = monotonic()

    def __call__(self) -> float:
        monotonic = self._monotonic()
        # Both: the system's clock may be set back, and the monotonic one stands still while the machine sleeps.
        self._last = max(self._system(), self._last + (monotonic - self._last_monotonic))
        self._last_monotonic = monotonic
        return self._last


MAX_IN_MEMORY: Final = 100_000


class SessionRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The changeable part of a session."""

    expires: float
    """Seconds since the epoch at which it ends, unless it is used before."""
    log_level: str | None = None
    is_initialized: bool = False
    subscriptions: frozenset[str] = frozenset()
    """URIs."""
    lists: Mapping[str, str] = msgspec.field(default_factory=dict)
    """The fingerprint of each list, by kind, as the client was told of it last."""
    is_ended: bool = False
    """Whether it was ended before its time, so that its id is good no more."""


NOTHING_BEFORE: Final[Mapping[str, SessionRecord]] = MappingProxyType({})


class SessionStore(Protocol):
    """Records by nonce, wherever they are kept. Those that have expired are forgotten.

    A store that several processes share writes the difference from the record that stood `before`: another process may
    have changed the rest. Without one it writes the whole record.
    """

    @property
    def is_shared(self) -> bool:
        """Whether other processes serve the same sessions at the same time."""

    @property
    def knows_the_past(self) -> bool:
        """Whether a session of an earlier process that has no record here has expired."""

    async def load(self, nonce: str) -> SessionRecord | None: ...

    async def save(self, nonce: str, record: SessionRecord, *, before: SessionRecord | None = None) -> None:
        """Write a record, and return when it is written. One that says that the session ended is never replaced."""

    def save_soon(
        self, records: Mapping[str, SessionRecord], *, before: Mapping[str, SessionRecord] = NOTHING_BEFORE
    ) -> None:
        """Write records, and wait for nothing."""

    def release(self, nonce: str) -> None:
        """Note that this process serves a session no more, which others may."""

    def forget_expired(self) -> None: ...


class MemorySessionStore:
    """The `SessionStore` of one process, which forgets with it."""

    is_shared = False
    knows_the_past = False

    def __init__(self, *, clock: Callable[[], float]) -> None:
        self._records: Final[BoundedMap[str, SessionRecord]] = BoundedMap(MAX_IN_MEMORY, clock=clock)

    async def load(self, nonce: str) -> SessionRecord | None:
        return self._records.get(nonce)

    async def save(self, nonce: str, record: SessionRecord, *, before: SessionRecord | None = None) -> None:
        del before
        self.save_soon({nonce: record})

    def save_soon(
        self, records: Mapping[str, SessionRecord], *, before: Mapping[str, SessionRecord] = NOTHING_BEFORE
    ) -> None:
        del before
        for nonce, record in records.items():
            if (known := self._records.get(nonce)) is None or not known.is_ended:
                self._records.put(nonce, record, expires=record.expires)

    def release(self, nonce: str) -> None:
        """Nobody else serves it."""

    def forget_expired(self) -> None:
        """Entries that have expired make room for others by themselves."""
