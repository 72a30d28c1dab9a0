"""Messages between replicas. Each replica reads one stream in the store, which is its mailbox.

Messages to all replicas are written once, to a common stream. A mailbox expires a minute after its replica was last
seen. Later messages to this replica are dropped.
"""

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import structlog

from gateway.background_tasks import BackgroundTasks
from gateway.bounded_map import BoundedMap
from gateway.errors import StoreUnavailableError
from gateway.state.redis_connection import RedisConnection

log: Final = structlog.get_logger(__name__)

Handler = Callable[[bytes], Awaitable[bytes]]
"""A function that receives the body of a message and returns the body of the reply."""

MAX_STREAM_LENGTH: Final = 10_000
_REPLY_SECONDS: Final = 2.0
_FORGET_SECONDS: Final = 60
_READ_SECONDS: Final = 5.0
_REFRESH_SECONDS: Final = 10.0
_REPLY: Final = "reply"
_MAX_SEEN_IDS: Final = 10_000


class Mailbox:
    """Receives and sends the messages of this replica. Methods raise StoreUnavailableError during an outage."""

    def __init__(self, store: RedisConnection, *, replica: str) -> None:
        self.replica: Final = replica
        self.sent = 0
        self.received = 0
        self._store: Final = store
        self._shared_key: Final = f"{store.prefix}announcements"
        self._handlers: Final[dict[str, Handler]] = {}
        self._asked: Final[dict[str, asyncio.Future[bytes]]] = {}
        self._taken: Final[BoundedMap[str, bool]] = BoundedMap(_MAX_SEEN_IDS)
        self._tasks: Final = BackgroundTasks()
        self._read: Final[dict[str, str]] = {}
        """The id of the last read entry, by stream key."""
        self._is_open = False
        store.on_return(self._open)

    async def close(self) -> None:
        await self._tasks.cancel()

    def on(self, kind: str, handler: Handler) -> None:
        self._handlers[kind] = handler

    async def tell(self, replica: str, kind: str, body: bytes) -> bool:
        """Send a message to a replica. Return False if the replica does not exist."""
        return await self._send(replica, kind, body, message_id=_new_id())

    async def ask(self, replica: str, kind: str, body: bytes, *, seconds: float = _REPLY_SECONDS) -> bytes | None:
        """Send a message and return the reply. Return None if the replica does not exist or does not reply in time."""
        message_id = _new_id()
        reply: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._asked[message_id] = reply
        try:
            if not await self._send(replica, kind, body, message_id=message_id, wants_reply=True):
                return None
            async with asyncio.timeout(seconds):
                return await reply
        except TimeoutError:
            return None
        finally:
            del self._asked[message_id]

    async def is_there(self, replica: str) -> bool:
        return bool(await self._store.command("EXISTS", self._store.key_of(replica)))

    async def tell_all(self, kind: str, body: bytes) -> None:
        fields = self._fields(kind, body, message_id=_new_id())
        # `~` trims whole nodes of the stream, which costs less than an exact length (https://redis.io/docs/latest/commands/xadd).
        await self._store.command("XADD", self._shared_key, "MAXLEN", "~", MAX_STREAM_LENGTH, "*", *fields)
        self.sent += 1

    def _key(self, replica: str) -> str:
        return f"{self._store.prefix}mailbox:{replica}"

    async def _send(self, replica: str, kind: str, body: bytes, *, message_id: str, wants_reply: bool = False) -> bool:
        fields = self._fields(kind, body, message_id=message_id, wants_reply=wants_reply)
        # NOMKSTREAM: do not create a stream for a missing replica.
        added = await self._store.command(
            "XADD", self._key(replica), "NOMKSTREAM", "MAXLEN", "~", MAX_STREAM_LENGTH, "*", *fields
        )
        self.sent += 1
        return added is not None

    def _fields(self, kind: str, body: bytes, *, message_id: str, wants_reply: bool = False) -> tuple[str | bytes, ...]:
        wanted = ("r", "1") if wants_reply else ()
        return ("k", kind, "i", message_id, "f", self.replica, *wanted, "b", body)

    async def _open(self) -> None:
        own = self._key(self.replica)
        # An empty message creates the stream. `_take` ignores messages of this replica.
        entry = await self._store.command("XADD", own, "*", "k", "", "i", "", "f", self.replica, "b", b"")
        await self._store.command("EXPIRE", own, _FORGET_SECONDS)
        if self._is_open:
            return
        self._read[own] = entry.decode()
        # Skip earlier announcements.
        newest = await self._store.command("XREVRANGE", self._shared_key, "+", "-", "COUNT", 1)
        self._read[self._shared_key] = newest[0][0].decode() if newest else "0"
        self._is_open = True
        self._tasks.begin(self._read_on(own), name="mailbox")
        self._tasks.begin(self._read_on(self._shared_key), name="announcements")
        self._tasks.begin(self._refresh(own), name="mailbox: refresh")

    async def _read_on(self, key: str) -> None:
        while True:
            try:
                entries = await self._store.read_stream(key, after=self._read[key], seconds=_READ_SECONDS)
            except StoreUnavailableError:
                await self._store.returned()
                continue
            for entry, fields in entries:
                self._read[key] = entry
                self._take(fields)

    def _take(self, fields: Mapping[str, bytes]) -> None:
        try:
            kind, message_id, sender = (fields[name].decode() for name in ("k", "i", "f"))
        except (KeyError, UnicodeDecodeError) as error:
            log.warning("malformed message from another replica skipped", reason=str(error))
            return
        # Ignore this replica's own announcements, and duplicates from retried commands.
        if sender == self.replica or self._taken.get(message_id):
            return
        self._taken.put(message_id, value=True)
        self.received += 1
        body = fields.get("b", b"")
        if kind == _REPLY:
            asked, _, content = body.partition(b" ")
            waiting = self._asked.get(asked.decode(errors="replace"))
            if waiting is not None and not waiting.done():
                waiting.set_result(content)
        elif (handler := self._handlers.get(kind)) is not None:
            reply_to = (sender, message_id) if "r" in fields else None
            # Use a separate task: a handler can ask another replica, and this loop must read the reply.
            work = self._handle(handler, kind, body, reply_to=reply_to)
            self._tasks.begin(work, name="message of another replica")

    async def _handle(self, handler: Handler, kind: str, body: bytes, *, reply_to: tuple[str, str] | None) -> None:
        try:
            reply = await handler(body)
            if reply_to is not None:
                sender, message_id = reply_to
                await self._send(sender, _REPLY, message_id.encode() + b" " + reply, message_id=_new_id())
        except StoreUnavailableError:
            pass  # The replica that asked notices the outage too.
        except Exception:  # Boundary: a message of another version of the gateway, or our bug.
            log.exception("message of another replica failed", kind=kind)

    async def _refresh(self, own: str) -> None:
        while True:
            await asyncio.sleep(_REFRESH_SECONDS)
            try:
                await self._store.command("EXPIRE", own, _FORGET_SECONDS)
                await self._store.command("XTRIM", own, "MINID", self._read[own])
            except StoreUnavailableError:
                await self._store.returned()


def _new_id() -> str:
    return secrets.token_hex(8)
