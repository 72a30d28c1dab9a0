"""Runs the method of a call, and turns whatever comes out of it into a reply: a result, an error, or our bug."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Final

import structlog

from gateway.access.call_limits.shared_rate_limiter import SharedRateLimiter
from gateway.config.models.rates import RateLimit
from gateway.errors import ErrorCode, OverLimitError, RpcError
from gateway.executors.invocation import AwaitingInput
from gateway.json_types import JsonObject
from gateway.protocol import results
from gateway.protocol.call.call import Call
from gateway.protocol.call.observers import CallRecorder
from gateway.protocol.call.progress import Progress
from gateway.protocol.counters import NotificationCounters
from gateway.protocol.exchange import Reply
from gateway.protocol.methods.table import METHODS, Method
from gateway.telemetry.observer import Observer
from gateway.wire import jsonrpc

log: Final = structlog.get_logger(__name__)


class MethodRunner:
    """The boundary between methods and replies."""

    def __init__(
        self,
        *,
        observers: Sequence[Observer],
        observers_of_all: Sequence[Observer],
        rates: SharedRateLimiter,
        repeat_after: timedelta,
        counters: NotificationCounters,
    ) -> None:
        """Run nothing yet; see `Dispatcher` for the observers and `repeat_after`."""
        self._observers: Final = (*observers_of_all, *observers)
        self._observers_of_all: Final = tuple(observers_of_all)
        self._rates: Final = rates
        self._repeat_after: Final = repeat_after
        self._counters: Final = counters

    async def run(self, call: Call) -> Reply:
        """Run a method that exists, and turn whatever comes out of it into a reply."""
        method = METHODS[call.method]
        progress = None
        with CallRecorder(call, self._observers if method.is_call else self._observers_of_all) as record:
            try:
                try:
                    if call.catalog.limits.rate_limit is not None:
                        await self._check_rate(call.catalog.limits.rate_limit, call, method)
                    if method.is_call and call.progress_token is not None:
                        progress = call.progress = self._progress(call, call.progress_token)
                    result = await method.handler(call)
                except AwaitingInput as waiting:
                    result = waiting.result
                except OverLimitError as error:
                    record.over_limit(error.limit)
                    result = method.refused(error, call)
                finally:
                    if progress is not None:
                        await progress.end()
                reply = Reply(body=jsonrpc.encode_result(call.request_id, _encoded(result, call)))
            except RpcError as error:
                reply = results.error_reply(_masked(error, call), request_id=call.request_id, revision=call.revision)
                record.failed(error, reply)
                return reply
            except Exception:  # Boundary: our bug must cost its caller an error, and nobody else anything.
                log.exception("request failed", method=call.method, correlation_id=call.id)
                hidden = RpcError(ErrorCode.INTERNAL_ERROR, f"Internal error (correlation id {call.id})")
                reply = results.error_reply(hidden, request_id=call.request_id, revision=call.revision)
                record.failed(hidden, reply)
                return reply
            record.answered(result, reply)
            return reply

    async def _check_rate(self, limit: RateLimit, call: Call, method: Method) -> None:
        caller = call.caller.rate_limit_key
        if method.is_call:
            await self._rates.acquire("limits.rate_limit", limit, caller=caller)
        elif method.is_list and call.params.get("cursor") is None:  # a long list has many pages, and is one
            await self._rates.acquire(f"limits.rate_limit of {call.method}", limit, caller=caller)

    def _progress(self, call: Call, token: str | int) -> Progress:
        return Progress(
            token,
            call.exchange,
            revision=call.revision,
            repeat_after=self._repeat_after,
            counters=self._counters,
        )


def _encoded(result: JsonObject | bytes, call: Call) -> bytes:
    if isinstance(result, bytes):
        return result
    return jsonrpc.encode(results.complete(result, catalog=call.catalog, revision=call.revision))


def _masked(error: RpcError, call: Call) -> RpcError:
    """A plugin's protocol error may quote what it was given by the environment."""
    error.message = call.catalog.sanitizer.text(error.message)
    error.data = call.catalog.sanitizer.json(error.data)
    return error
