"""Copies events of resumable streams to the shared store, for clients that resume at another replica.

Each stream of a session is copied in the background to a Redis stream, which has a maximum length and expires. A
replica that resumes a stream reads the copied events and waits for new events. This replica also asks the original
replica whether more events will follow. The original replica then closes its old connection to the client.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from typing import Final, NamedTuple

import msgspec
import structlog

from gateway.errors import StoreUnavailableError
from gateway.state.replica import Replica

log: Final = structlog.get_logger(__name__)

MAX_WAITING_BYTES: Final = 16 * 2**20
"""The maximum number of bytes queued for writing. Further events are not copied."""
_KIND: Final = "stream asked for"
_CLOSE_SECONDS: Final = 5.0
"""The maximum time for writing pending events when the daemon stops."""
_POLL_SECONDS: Final = 5.0
"""The interval in seconds at which to ask the original replica whether more events will follow."""
_END: Final = b"end"

# Ignore ids that Redis rejects, because a retried write repeats the entries of the first attempt.
_APPEND: Final = """
for at = 3, #ARGV, 2 do
  local added = redis.pcall('XADD', KEYS[1], 'MAXLEN', '~', ARGV[2], ARGV[at], 'f', ARGV[at + 1])
  if type(added) == 'table' and added.err and not string.find(added.err, 'equal or smaller') then return added end
end
redis.call('EXPIRE', KEYS[1], ARGV[1])
return 1
"""
"""Appends events to a Redis stream. Arguments: TTL in seconds, maximum length, and pairs of event id and content."""


class RemotePlace(NamedTuple):
    """A position in an event stream of another process."""

    process: str
    number: int
    after: int
    answers: str | int | None
    """The id of the request to which the stream responds. None for a GET stream."""


class EventCopies:
    """Writes copies of the events of this process, and reads the copies of other processes."""

    def __init__(self, replica: Replica, *, max_events: int, age: timedelta) -> None:
        self._replica: Final = replica
        self._max_events: Final = max_events
        self._age: Final = age
        self._waiting: dict[str, list[str | bytes]] = {}
        self._size = 0
        self._has_dropped = False
        self._is_flushed: Final = asyncio.Event()
        self._is_flushed.set()
        self._writer: asyncio.Task[None] | None = None

    async def close(self) -> None:
        """Wait until pending events are written, unless the store is unavailable."""
        if self._writer is not None:
            if not self._replica.store.is_unavailable:
                await asyncio.wait([self._writer], timeout=_CLOSE_SECONDS)  # the store can fail during the wait
            self._writer.cancel()
            await asyncio.gather(self._writer, return_exceptions=True)

    def answer(self, abort_connection: Callable[[str, int], bool]) -> None:
        """Respond to replicas that resume our streams. `abort_connection` returns whether more events will follow."""

        async def answered(body: bytes) -> bytes:
            goes_on = abort_connection(*_QUESTIONS.decode(body))
            # The other replica reads the copies next, so they must be complete.
            await self._is_flushed.wait()
            return b"1" if goes_on else b""

        self._replica.mailbox.on(_KIND, answered)

    def write(self, nonce: str, number: int, event: int, frame: bytes) -> None:
        self._put(self._key(nonce, self._replica.name, number), f"{event}-1", frame)

    def end(self, nonce: str, number: int, last: int) -> None:
        # `-2` sorts after the last event, which has `-1`.
        self._put(self._key(nonce, self._replica.name, number), f"{last}-2", _END)

    async def read(self, nonce: str, place: RemotePlace) -> AsyncIterator[bytes | None]:
        """Yield the copied events after a position, and new events of a response. Yield None after a whole response.

        Raises:
            StoreUnavailableError: The store cannot be read.
        """
        key, after = self._key(nonce, place.process, place.number), f"{place.after}-1"
        goes_on = await self._ask(nonce, place)
        while True:
            seconds = _POLL_SECONDS if goes_on else 0
            entries = await self._replica.store.read_stream(key, after=after, seconds=seconds)
            for entry, fields in entries:
                after = entry
                yield None if fields["f"] == _END else fields["f"]
            if not entries and not goes_on:
                return
            if not entries:
                goes_on = await self._ask(nonce, place)

    async def _ask(self, nonce: str, place: RemotePlace) -> bool:
        """Return whether a response will continue. A GET stream continues at this replica."""
        question = msgspec.msgpack.encode((nonce, place.number))
        goes_on = await self._replica.mailbox.ask(place.process, _KIND, question)
        return bool(goes_on) and place.answers is not None

    def _key(self, nonce: str, process: str, number: int) -> str:
        return f"{self._replica.store.prefix}events:{nonce}:{process}-{number:x}"

    def _put(self, key: str, entry: str, content: bytes) -> None:
        if self._size > MAX_WAITING_BYTES:
            # Warn once until there is capacity again.
            if not self._has_dropped:
                log.warning("events not copied: the store does not accept them", waiting_bytes=self._size)
            self._has_dropped = True
            return
        self._waiting.setdefault(key, []).extend((entry, content))
        self._size += len(content)
        if self._is_flushed.is_set():
            self._is_flushed.clear()
            self._writer = asyncio.get_running_loop().create_task(self._write(), name="events: copy")

    async def _write(self) -> None:
        try:
            while self._waiting:
                waiting, self._waiting, self._size, self._has_dropped = self._waiting, {}, 0, False
                for key, entries in waiting.items():
                    await self._append(key, entries)
        finally:
            self._is_flushed.set()

    async def _append(self, key: str, entries: list[str | bytes]) -> None:
        seconds = int(self._age.total_seconds())
        while True:
            try:
                await self._replica.store.run(_APPEND, [key], seconds, self._max_events, *entries)
            except StoreUnavailableError:
                await self._replica.store.returned()
            else:
                return


_QUESTIONS: Final = msgspec.msgpack.Decoder(tuple[str, int])
"""Decodes a question from another replica: the session's nonce, and the stream's number."""
