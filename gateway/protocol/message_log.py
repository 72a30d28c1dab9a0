"""Logs every message at level debug. The content of files is replaced by descriptions.

Messages are logged as decoded values, because secrets with escaped characters would not be masked in JSON text.
"""

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Final

import msgspec
import structlog

from gateway import exact_json
from gateway.catalog.catalog import Catalog
from gateway.catalog.search_tools import CALL_TOOL
from gateway.json_types import Json, JsonObject
from gateway.protocol.exchange import Caller, Exchange, Reply
from gateway.telemetry.logs import CALL, LOG_CONTEXT, new_id
from gateway.wire.jsonrpc import Batch, InvalidMessageError, Message, Notification, Request, Response

log: Final = structlog.get_logger(__name__)

is_on: Final = partial(logging.getLogger(__name__).isEnabledFor, logging.DEBUG)
"""Returns whether messages are logged. Unlike structlog, the standard library caches the result of `isEnabledFor`."""


@contextmanager
def new_log_context() -> Iterator[None]:
    token = LOG_CONTEXT.set({CALL: new_id()})
    try:
        yield
    finally:
        LOG_CONTEXT.reset(token)


class LoggedExchange:
    __slots__ = ("_exchange", "caller")

    def __init__(self, exchange: Exchange) -> None:
        self._exchange: Final = exchange
        self.caller: Final[Caller] = exchange.caller

    async def send(self, notification: JsonObject) -> bool:
        is_sent = await self._exchange.send(notification)
        if is_sent:
            self._log("message sent", dict(notification))
        return is_sent

    async def close_stream(self, retry_ms: int | None) -> None:
        await self._exchange.close_stream(retry_ms)

    def received(self, message: Message | InvalidMessageError, catalog: Catalog) -> None:
        self._log("message received", _loggable(message, catalog))

    def answered(self, reply: Reply) -> Reply:
        if reply.body is not None:
            self._log("message sent", exact_json.loads(reply.body))
        return reply

    def _log(self, event: str, message: Json) -> None:
        log.debug(event, binding=self.caller.binding.value, message=message)


def described_params(method: str, params: JsonObject, catalog: Catalog) -> JsonObject:
    """Return the parameters with the content of each file replaced by a description."""
    name, arguments = params.get("name"), params.get("arguments")
    if method != "tools/call" or not isinstance(name, str) or not isinstance(arguments, Mapping):
        return params
    if name == CALL_TOOL:
        return {**params, "arguments": described_params(method, arguments, catalog)}
    tool = catalog.tool(name)
    return params if tool is None else {**params, "arguments": tool.arguments.described(arguments)}


def _loggable(message: Message | InvalidMessageError, catalog: Catalog) -> Json:
    match message:
        case Request():
            params = described_params(message.method, message.params, catalog)
            return {"id": message.id, "method": message.method, "params": params}
        case Notification() | Response():
            return msgspec.structs.asdict(message)
        case Batch():
            return [_loggable(entry, catalog) for entry in message.entries]
        case InvalidMessageError():
            # Do not log the bytes of the message, because secrets in them cannot be masked.
            return str(message)
