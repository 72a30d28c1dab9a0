"""Every message, for whoever runs the daemon at log level debug. Costs one look at the level otherwise.

Messages are logged as values, not as the bytes on the wire: the log masks secrets in strings, and in JSON a secret with
a quotation mark or a line break in it looks different.
"""

import logging
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Protocol, Self

import orjson
import structlog

from gateway.json_types import Json, JsonObject
from gateway.protocol.exchange import Caller, Exchange, Reply
from gateway.protocol.jsonrpc import Batch, InvalidMessageError, Message, Notification, Request, Response
from gateway.protocol.log_facts import CALL, LOG_FACTS, new_id

log: Final = structlog.get_logger(__name__)

_LEVEL: Final = logging.getLogger("gateway")
"""Knows the level of our own lines, which may change at any time; remembers what it was asked, unlike structlog's."""


class Spoken(Protocol):
    """One message, while it is answered."""

    @property
    def exchange(self) -> Exchange:
        """By which what is sent on its behalf is logged, too."""

    def answered(self, reply: Reply) -> Reply:
        """Log a reply, and return it."""


def spoken(message: Message, exchange: Exchange) -> AbstractContextManager[Spoken]:
    """A context for the time that a message is answered."""
    return _logged(message, exchange) if _LEVEL.isEnabledFor(logging.DEBUG) else _Unheard(exchange)


@contextmanager
def numbered() -> Iterator[None]:
    """A context for one request of several that came together: its log lines are its own."""
    token = LOG_FACTS.set({CALL: new_id()})
    try:
        yield
    finally:
        LOG_FACTS.reset(token)


class _Unheard:
    """One is made for each message: no dataclass, whose fields take four times as long to set when they are frozen."""

    __slots__ = ("exchange",)

    def __init__(self, exchange: Exchange) -> None:
        self.exchange: Final = exchange

    def answered(self, reply: Reply) -> Reply:
        return reply

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing was begun."""


@contextmanager
def _logged(message: Message, exchange: Exchange) -> Iterator[Spoken]:
    with numbered():
        log.debug("message received", binding=exchange.caller.binding.value, message=_written(message))
        yield _Heard(_LoggedExchange(exchange))


@dataclass(frozen=True, slots=True)
class _Heard:
    exchange: "_LoggedExchange"

    def answered(self, reply: Reply) -> Reply:
        if reply.body is not None:
            log.debug("message sent", binding=self.exchange.caller.binding.value, message=orjson.loads(reply.body))
        return reply


@dataclass(frozen=True, slots=True)
class _LoggedExchange:
    exchange: Exchange

    @property
    def caller(self) -> Caller:
        return self.exchange.caller

    async def send(self, notification: JsonObject) -> bool:
        is_sent = await self.exchange.send(notification)
        if is_sent:
            log.debug("message sent", binding=self.caller.binding.value, message=dict(notification))
        return is_sent

    async def close_stream(self, retry_ms: int | None) -> None:
        await self.exchange.close_stream(retry_ms)


def _written(message: Message | InvalidMessageError) -> Json:
    match message:
        case Request():
            return {"id": message.id, "method": message.method, "params": message.params}
        case Notification():
            return {"method": message.method, "params": message.params}
        case Response():
            return {"id": message.id, "result": message.result, "error": message.error}
        case Batch():
            return [_written(entry) for entry in message.entries]
        case InvalidMessageError():
            return str(message)
