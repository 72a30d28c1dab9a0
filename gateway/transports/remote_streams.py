"""Passes on messages of HTTP+SSE whose stream another replica holds: the address that it gave out names it."""

from collections.abc import Awaitable, Callable
from typing import Final

import msgspec

from gateway.access.identity import Identity
from gateway.errors import StoreAwayError
from gateway.protocol.exchange import Binding, Caller
from gateway.state.replica import Replica
from gateway.transports.errors import RETRY, HttpError

_KIND: Final = "http+sse message"
_GONE: Final = HttpError(status=404, message="The replica that held this session's stream is gone; open a new one")
_SILENT: Final = HttpError(
    status=503, message="The replica that holds this session's stream does not answer", headers=RETRY
)


class StreamMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message, and who sent it. Neither header fields nor tokens: they are secrets."""

    session_id: str
    message: bytes
    identity: Identity
    view: str | None
    address: str

    @property
    def caller(self) -> Caller:
        return Caller(binding=Binding.HTTP_SSE, identity=self.identity, view=self.view, address=self.address)


class RemoteStreams:
    """The streams of HTTP+SSE that other replicas hold."""

    def __init__(self, replica: Replica, *, take: Callable[[StreamMessage], Awaitable[HttpError | None]]) -> None:
        """Send nothing yet; `take` takes what others pass on."""
        self._replica: Final = replica
        self._take: Final = take
        replica.mailbox.on(_KIND, self._taken)

    def named(self, session_id: str) -> str:
        """The id of a session whose stream is here, as others can pass messages on to it."""
        return f"{self._replica.name}.{session_id}"

    def holds(self, session_id: str) -> bool:
        """Whether the id names another replica."""
        # The client may have made this up, and the name is a part of a key in the store: letters and digits alone.
        name, dot, _ = session_id.partition(".")
        return bool(dot) and name.isalnum() and name.isascii() and name != self._replica.name

    async def post(self, session_id: str, message: bytes, caller: Caller) -> HttpError | None:
        """Pass a message on. Returns why it was not taken."""
        name = session_id.partition(".")[0]
        passed_on = StreamMessage(
            session_id=session_id,
            message=message,
            identity=caller.identity,
            view=caller.view,
            address=caller.address,
        )
        try:
            reply = await self._replica.mailbox.ask(name, _KIND, msgspec.msgpack.encode(passed_on))
            if reply is not None:
                return _REFUSALS.decode(reply)
            return _SILENT if await self._replica.mailbox.is_there(name) else _GONE
        except StoreAwayError as error:
            return HttpError(status=503, message=error.message, headers=RETRY)

    async def _taken(self, body: bytes) -> bytes:
        return msgspec.msgpack.encode(await self._take(_MESSAGES.decode(body)))


_MESSAGES: Final = msgspec.msgpack.Decoder(StreamMessage)
_REFUSALS: Final[msgspec.msgpack.Decoder[HttpError | None]] = msgspec.msgpack.Decoder(HttpError | None)
