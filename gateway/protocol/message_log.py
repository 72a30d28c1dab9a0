"""Every message, for whoever runs the daemon at log level debug. Costs one comparison at the other levels.

Messages are logged as values, not as the bytes on the wire: the log masks secrets in strings, and in JSON a secret with
a quotation mark or a line break in it looks different.
"""

import logging
from dataclasses import dataclass
from typing import Final

import orjson
import structlog

from gateway.json_types import Json, JsonObject
from gateway.protocol.exchange import Caller, Exchange, Reply
from gateway.protocol.jsonrpc import Batch, InvalidMessageError, Message, Notification, Request, Response

log: Final = structlog.get_logger(__name__)


class MessageLog:
    """Made when the level is settled: looking it up takes longer than anything else that is done to each message."""

    def __init__(self) -> None:
        self._is_wanted: Final[bool] = log.is_enabled_for(logging.DEBUG)

    def received(self, message: Message, exchange: Exchange) -> Exchange:
        """Log a message, and return the exchange by which what is sent on its behalf is logged, too."""
        if not self._is_wanted:
            return exchange
        log.debug("message received", binding=exchange.caller.binding.value, message=_written(message))
        return _LoggedExchange(exchange)

    def answered(self, reply: Reply, exchange: Exchange) -> Reply:
        """Log a reply, and return it."""
        if self._is_wanted and reply.body is not None:
            log.debug("message sent", binding=exchange.caller.binding.value, message=orjson.loads(reply.body))
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
