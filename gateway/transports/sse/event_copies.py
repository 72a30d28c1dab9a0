"""Copies of resumable streams' events in the store of all replicas, for clients that come back to another one.

A Redis stream for each stream of a session that has said anything, of bounded length, which is forgotten after a while.
The replica that serves a request writes behind what it says; another one reads what came after an event, and what comes
until the answer. It asks the first one how the stream is, which then lets go of the connection that the client lost.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from typing import Final, NamedTuple

import msgspec
import structlog

from gateway.errors import StoreAwayError
from gateway.state.redis_connection import Script
from gateway.state.replica import Replica

log: Final = structlog.get_logger()

MAX_WAITING_BYTES: Final = 16 * 2**20
"""Of events that wait to be written. More are not copied."""
_KIND: Final = "stream asked for"
_POLL_SECONDS: Final = 5.0
"""How often a replica whose stream is read says that it still lives."""
_FRAME: Final = b"f"
_END: Final = b"end"

# A write whose reply was lost is done again, and meets entries of its own: Redis refuses their ids, which is fine.
_APPEND: Final = Script.of("""
for at = 3, #ARGV, 2 do
  local added = redis.pcall('XADD', KEYS[1], 'MAXLEN', '~', ARGV[2], ARGV[at], 'f', ARGV[at + 1])
  if type(added) == 'table' and added.err and not string.find(added.err, 'equal or smaller') then return added end
end
redis.call('EXPIRE', KEYS[1], ARGV[1])
return 1
""")
"""Values: seconds until it is forgotten, entries to keep, and id and content of each. What is there stays as it is."""


class RemotePlace(NamedTuple):
    """A place in a stream of another process."""

    process: str
    number: int
    after: int
    answers: str | int | None
    """The id of the request that the stream answers; None: it belongs to none."""


class EventCopies:
    """The copies that this process writes, and those of others."""

    def __init__(self, replica: Replica, *, max_events: int, age: timedelta) -> None:
        self._replica: Final = replica
        self._max_events: Final = max_events
        self._age: Final = age
        self._waiting: dict[str, list[str | bytes]] = {}
        """By key, ids and contents of events."""
        self._size = 0
        self._has_dropped = False
        self._is_flushed: Final = asyncio.Event()
        self._is_flushed.set()
        self._writer: asyncio.Task[None] | None = None

    async def close(self) -> None:
        """Write what waits, unless the store is away."""
        if self._writer is not None:
            if self._replica.store.is_away:
                self._writer.cancel()
            await asyncio.gather(self._writer, return_exceptions=True)

    def answer(self, abort_connection: Callable[[str, int], bool]) -> None:
        """Answer other replicas; `abort_connection` aborts a stream's, and says whether more will be said."""

        async def answered(body: bytes) -> bytes:
            goes_on = abort_connection(*_QUESTIONS.decode(body))
            # Whoever asks reads the copies next, and must find all that was said until now.
            await self._is_flushed.wait()
            return b"1" if goes_on else b""

        self._replica.mailbox.on(_KIND, answered)

    def write(self, nonce: str, number: int, event: int, frame: bytes) -> None:
        """Copy an event soon."""
        self._put(self._key(nonce, self._replica.name, number), f"{event}-1", frame)

    def end(self, nonce: str, number: int, last: int) -> None:
        """Note soon that a stream has ended."""
        # `-2` sorts behind the last event, which has `-1`.
        self._put(self._key(nonce, self._replica.name, number), f"{last}-2", _END)

    async def until_now(self, nonce: str, place: RemotePlace) -> list[bytes]:
        """Return the events that came after a place of a stream, now that its client is here.

        Raises:
            StoreAwayError: it cannot be read now.
        """
        await self._ask(nonce, place)
        entries = await self._replica.store.command("XRANGE", self._key_of(nonce, place), f"({place.after}-1", "+")
        return [fields[_FRAME] for _, fields in entries if fields[_FRAME] != _END]

    async def until_end(self, nonce: str, place: RemotePlace) -> AsyncIterator[bytes | None]:
        """Yield the events after a place, and those that come from now on; at last None, if the answer never comes.

        Raises:
            StoreAwayError: it cannot be read now.
        """
        key, after, goes_on = self._key_of(nonce, place), f"{place.after}-1", await self._ask(nonce, place)
        while True:
            entries = await self._replica.store.read_stream(key, after=after, seconds=_POLL_SECONDS if goes_on else 0)
            for entry, fields in entries:
                after = entry
                if fields["f"] == _END:
                    return
                yield fields["f"]
            if not entries and not goes_on:
                break
            if not entries:
                goes_on = await self._ask(nonce, place)
        yield None

    async def _ask(self, nonce: str, place: RemotePlace) -> bool:
        """Ask for a stream; False if no more will be said."""
        question = msgspec.msgpack.encode((nonce, place.number))
        return bool(await self._replica.mailbox.ask(place.process, _KIND, question))

    def _key(self, nonce: str, process: str, number: int) -> str:
        return f"{self._replica.store.prefix}events:{nonce}:{process}-{number:x}"

    def _key_of(self, nonce: str, place: RemotePlace) -> str:
        return self._key(nonce, place.process, place.number)

    def _put(self, key: str, entry: str, content: bytes) -> None:
        if self._size > MAX_WAITING_BYTES:
            # Once until there is room again, and not for each of the thousands that may follow.
            if not self._has_dropped:
                log.warning("events not copied: the store does not take them", waiting_bytes=self._size)
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
            except StoreAwayError:
                await self._replica.store.returned()
            else:
                return


class SessionCopies:
    """The copies of one session's streams."""

    __slots__ = ("_copies", "_nonce", "_written")

    def __init__(self, copies: EventCopies, nonce: str) -> None:
        self._copies: Final = copies
        self._nonce: Final = nonce
        self._written: Final[set[int]] = set()
        """Streams of which something is copied, and not the end."""

    def write(self, number: int, event: int, frame: bytes) -> None:
        self._written.add(number)
        self._copies.write(self._nonce, number, event, frame)

    def end(self, number: int, last: int) -> None:
        if number in self._written:
            self._written.discard(number)
            self._copies.end(self._nonce, number, last)


_QUESTIONS: Final = msgspec.msgpack.Decoder(tuple[str, int])
"""The record of the session, and the number of the stream, that a client resumes at another replica."""
