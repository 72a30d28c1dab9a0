"""Runs the method of a call, notifies observers, and turns the result or exception into a reply."""

import time
from collections.abc import Callable
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
    method = METHODS[call.method]
    observers = call.server.observers if method.is_call else call.server.observers_of_all
    trace, fields = call.trace, {CALL: call.id}
    token = LOG_CONTEXT.set(fields if trace is None else {**fields, TRACE_ID: trace.trace_id})
    began = time.monotonic()
    ending = CallResult(outcome=Outcome.CANCELLED, seconds=0)
    for observer in observers:
        _notify(observer.began, call)
    try:
        reply, ending = await _answer(call, method)
        return reply
    finally:
        if observers:
            ending = replace(ending, seconds=time.monotonic() - began)
            for observer in observers:
                _notify(observer.ended, call, ending)
        LOG_CONTEXT.reset(token)


async def _answer(call: Call, method: Method) -> tuple[Reply, CallResult]:
    limit: str | None = None
    try:
        try:
            result = await _result(call, method)
        except AwaitingInput as waiting:
            result = waiting.result
        except OverLimitError as error:
            limit = error.limit
            result = method.refused(error, call)
        # Inside `try`, because a result may not be encodable.
        reply = Reply(body=jsonrpc.encode_result(call.request_id, _encoded(result, call)))
        outcome, failure = _outcome_of(result), None
    except RpcError as error:
        masked = error.masked(call.catalog.sanitizer.text, call.catalog.sanitizer.json)
        reply = results.error_reply(masked, request_id=call.request_id, revision=call.revision)
        outcome, failure = Outcome.PROTOCOL_ERROR, error
    except Exception:  # Boundary: a bug must only fail this call.
        log.exception("request failed", method=call.method, correlation_id=call.id)
        outcome = Outcome.PROTOCOL_ERROR
        failure = RpcError(ErrorCode.INTERNAL_ERROR, f"Internal error (correlation id {call.id})")
        reply = results.error_reply(failure, request_id=call.request_id, revision=call.revision)
    return reply, CallResult(
        outcome=outcome,
        seconds=0,
        error=failure,
        is_over_limit=limit is not None,
        limit=limit or "",
        response=reply.body,
    )


async def _result(call: Call, method: Method) -> JsonObject | bytes:
    progress = None
    try:
        if call.catalog.limits.rate_limit is not None:
            await _check_rate(call.catalog.limits.rate_limit, call, method)
        if method.is_call and (progress := _progress_of(call)) is not None:
            call = replace(call, progress=progress)
        return await method.handler(call)
    finally:
        # basic/utilities/progress: notifications stop with the request.
        if progress is not None:
            await progress.end()


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
