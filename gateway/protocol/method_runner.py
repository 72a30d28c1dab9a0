"""Runs the method of a call, notifies observers, and turns the result or exception into a reply."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

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
from gateway.telemetry.logs import CALL, LOG_CONTEXT, TRACE_ID
from gateway.telemetry.observer import CallResult, Outcome
from gateway.wire import jsonrpc

log: Final = structlog.get_logger(__name__)


async def run_method(call: Call) -> Reply:
    method, progress, limit = METHODS[call.method], None, None
    with _observed(call, method) as set_ending:
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
                limit = error.limit
                result = method.refused(error, call)
            finally:
                # basic/utilities/progress: notifications stop with the request.
                if progress is not None:
                    await progress.end()
            # Inside `try`, because a result may not be encodable.
            reply = Reply(body=jsonrpc.encode_result(call.request_id, _encoded(result, call)))
            outcome, failure = _outcome_of(result), None
        except RpcError as error:
            masked = error.masked(call.catalog.sanitizer.text, call.catalog.sanitizer.json)
            reply = results.error_reply(masked, request_id=call.request_id, revision=call.revision)
            outcome, failure = Outcome.PROTOCOL_ERROR, error
        except Exception:  # Boundary: a bug must only fail this call.
            log.exception("request failed", method=call.method, correlation_id=call.id)
            failure = RpcError(ErrorCode.INTERNAL_ERROR, f"Internal error (correlation id {call.id})")
            reply = results.error_reply(failure, request_id=call.request_id, revision=call.revision)
            outcome = Outcome.PROTOCOL_ERROR
        set_ending(CallResult(outcome=outcome, error=failure, limit=limit, response=reply.body))
        return reply


@contextmanager
def _observed(call: Call, method: Method) -> Iterator[Callable[[CallResult], None]]:
    """Notify the observers. Yield a function that takes the ending, unless the call is cancelled."""
    observers = call.server.observers if method.is_call else call.server.observers_of_all
    trace, fields = call.trace, {CALL: call.id}
    token = LOG_CONTEXT.set(fields if trace is None else {**fields, TRACE_ID: trace.trace_id})
    began = time.monotonic()
    endings: list[CallResult] = []
    for observer in observers:
        _notify(observer.began, call)
    try:
        yield endings.append
    finally:
        if observers:
            ending = endings[0] if endings else CallResult(outcome=Outcome.CANCELLED)
            ending = replace(ending, seconds=time.monotonic() - began)
            for observer in observers:
                _notify(observer.ended, call, ending)
        LOG_CONTEXT.reset(token)


def _notify(method: Callable[..., None], *facts: object) -> None:
    try:
        method(*facts)
    except Exception:  # Boundary: an observer must not fail the call.
        log.exception("observer failed")


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


def _outcome_of(result: JsonObject | bytes) -> Outcome:
    if isinstance(result, bytes):
        return Outcome.OK
    if result.get("isError") is True:
        return Outcome.TOOL_ERROR
    return Outcome.INPUT_REQUIRED if result.get("resultType") == "input_required" else Outcome.OK
