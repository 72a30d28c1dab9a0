"""Runs the method of a call, notifies observers, and turns the result or exception into a reply."""

import time
from collections.abc import Mapping, Sequence
from contextvars import Token
from types import TracebackType
from typing import Final, Self

import msgspec
import structlog
from msgspec.structs import replace

from gateway.config.models.quantities import RateLimit
from gateway.errors import ErrorCode, OverLimitError, RpcError
from gateway.executors.invocation import AwaitingInput
from gateway.json_types import JsonObject
from gateway.protocol import results
from gateway.protocol.call.call import Call
from gateway.protocol.call.progress import Progress
from gateway.protocol.exchange import Reply
from gateway.protocol.methods.table import METHODS, Method
from gateway.telemetry.log_context import CALL, LOG_CONTEXT, TRACE_ID
from gateway.telemetry.observer import CallResult, Observer, Outcome
from gateway.wire import jsonrpc

log: Final = structlog.get_logger(__name__)

_OK: Final = Outcome.OK


async def run_method(call: Call) -> Reply:
    method, server, progress = METHODS[call.method], call.server, None
    with CallRecorder(call, server.observers if method.is_call else server.observers_of_all) as record:
        try:
            try:
                if call.catalog.limits.rate_limit is not None:
                    await _check_rate(call.catalog.limits.rate_limit, call, method)
                if method.is_call and (progress := _progress_of(call)) is not None:
                    call = replace(call, progress=progress)
                result = await method.handler(call)
            except AwaitingInput as waiting:
                result = waiting.result
            except OverLimitError as error:
                record.over_limit(error.limit)
                result = method.refused(error, call)
            finally:
                # basic/utilities/progress: notifications stop with the request.
                if progress is not None:
                    await progress.end()
            # Inside `try`, because a result may not be encodable.
            reply = Reply(body=jsonrpc.encode_result(call.request_id, _encoded(result, call)))
        except RpcError as error:
            masked = error.masked(call.catalog.sanitizer.text, call.catalog.sanitizer.json)
            reply = results.error_reply(masked, request_id=call.request_id, revision=call.revision)
            record.failed(error, reply)
            return reply
        except Exception:  # Boundary: a bug must only fail this call.
            log.exception("request failed", method=call.method, correlation_id=call.id)
            hidden = RpcError(ErrorCode.INTERNAL_ERROR, f"Internal error (correlation id {call.id})")
            reply = results.error_reply(hidden, request_id=call.request_id, revision=call.revision)
            record.failed(hidden, reply)
            return reply
        record.answered(result, reply)
        return reply


def _progress_of(call: Call) -> Progress | None:
    if (token := call.progress_token) is None:
        return None
    return Progress(
        token,
        call.exchange,
        revision=call.revision,
        repeat_after=call.server.repeat_after,
        counters=call.server.notifier.counters,
    )


async def _check_rate(limit: RateLimit, call: Call, method: Method) -> None:
    rates, caller = call.server.rate_limiter, call.caller.rate_limit_key
    if method.is_call:
        await rates.acquire("limits.rate_limit", limit, caller=caller)
    elif method.is_list and call.params.get("cursor") is None:  # all pages of a list count once
        await rates.acquire(f"limits.rate_limit of {call.method}", limit, caller=caller)


def _encoded(result: JsonObject | bytes, call: Call) -> bytes:
    if isinstance(result, bytes):
        return result
    return jsonrpc.encode(results.complete(result, catalog=call.catalog, revision=call.revision))


class CallRecorder(msgspec.Struct, eq=False):
    call: Call
    observers: Sequence[Observer]
    _outcome: Outcome = Outcome.CANCELLED
    _error: RpcError | None = None
    _limit: str | None = None
    _response: bytes | None = None
    _began: float = 0.0
    _token: Token[Mapping[str, str]] | None = None

    def __enter__(self) -> Self:
        trace = self.call.trace
        fields = {CALL: self.call.id}
        self._token = LOG_CONTEXT.set(fields if trace is None else {**fields, TRACE_ID: trace.trace_id})
        self._began = time.monotonic()
        for observer in self.observers:
            try:
                observer.began(self.call)
            except Exception:  # Boundary: an observer must not fail the call.
                log.exception("observer failed")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.observers:
            seconds = time.monotonic() - self._began
            ending = CallResult(
                outcome=self._outcome,
                seconds=seconds,
                error=self._error,
                is_over_limit=self._limit is not None,
                limit=self._limit or "",
                response=self._response,
            )
            for observer in self.observers:
                try:
                    observer.ended(self.call, ending)
                except Exception:  # Boundary: an observer must not fail the call.
                    log.exception("observer failed")
        if self._token is not None:
            LOG_CONTEXT.reset(self._token)

    def answered(self, result: JsonObject | bytes, reply: Reply) -> None:
        self._outcome = _OK if isinstance(result, bytes) else _outcome_of(result)
        self._response = reply.body

    def over_limit(self, limit: str) -> None:
        self._limit = limit

    def failed(self, error: RpcError, reply: Reply) -> None:
        self._outcome, self._error, self._response = Outcome.PROTOCOL_ERROR, error, reply.body


def _outcome_of(result: JsonObject) -> Outcome:
    if result.get("isError") is True:
        return Outcome.TOOL_ERROR
    return Outcome.INPUT_REQUIRED if result.get("resultType") == "input_required" else Outcome.OK
