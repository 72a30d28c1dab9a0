"""The `SessionStore` of one process, which forgets with it."""

from collections.abc import Callable, Mapping
from typing import Final

from gateway.bounded_map import BoundedMap
from gateway.state.session_store import NOTHING_BEFORE, SessionRecord

MAX_IN_MEMORY: Final = 100_000


class MemorySessionStore:
    """Implements `SessionStore`."""

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
