"""Lists the methods of the protocol. `run_method` runs a method, notifies observers, and builds the reply."""

import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Final

import msgspec
import structlog
from msgspec.structs import replace

from gateway.config.models.quantities import RateLimit
from gateway.errors import ErrorCode, OverLimitError, RpcError, TooManyRequestsError
from gateway.executors.invocation import AwaitingInput
from gateway.json_types import JsonObject
from gateway.protocol import results
from gateway.protocol.call.call import Call
from gateway.protocol.call.progress import Progress
from gateway.protocol.exchange import Reply
from gateway.protocol.methods import lifecycle, prompts, resources, subscriptions, tasks, tools
from gateway.protocol.tasks.wire import declares_tasks, missing_extension
from gateway.telemetry.logs import CALL, LOG_CONTEXT, TRACE_ID
from gateway.telemetry.observer import CallResult, ClientTerms, Outcome
from gateway.wire import jsonrpc
from gateway.wire.revisions import Era

log: Final = structlog.get_logger(__name__)

Handler = Callable[[Call], Awaitable[JsonObject | bytes]]

BOTH: Final = frozenset(Era)
LEGACY_ONLY: Final = frozenset({Era.LEGACY})
MODERN_ONLY: Final = frozenset({Era.MODERN})


def _refused(error: OverLimitError, call: Call) -> JsonObject:
    raise TooManyRequestsError(call.catalog.sanitizer.text(str(error)), retry_after=error.retry_after) from error


class Method(msgspec.Struct, frozen=True):
    handler: Handler
    eras: frozenset[Era]
    is_call: bool = False
    """Whether the method runs a backend or a plugin, so that limits count the request as a call."""
    is_list: bool = False
    """Whether `limits.rate_limit` counts requests of this method, separately from calls."""
    is_of_tasks: bool = False
    """Whether the method requires the tasks extension."""
    refused: Callable[[OverLimitError, Call], JsonObject] = _refused
    """Returns the result of a call that a limit refuses, or raises the error."""


def _list(name: str, eras: frozenset[Era] = BOTH) -> Method:
    """Return a list method. `name` is the member of the result that contains the entries, such as `tools`."""

    async def page(call: Call) -> bytes:
        return call.server.pages.page(
            name, catalog=call.catalog, revision=call.revision, cursor=call.params.get("cursor")
        )

    return Method(page, eras, is_list=True)


# MCP 2026-07-28 changelog: `ping`, `logging/setLevel`, `resources/subscribe` and `resources/unsubscribe` were removed.
METHODS: Final[Mapping[str, Method]] = MappingProxyType(
    {
        "completion/complete": Method(prompts.complete, BOTH, is_call=True),
        "logging/setLevel": Method(lifecycle.set_level, LEGACY_ONLY),
        "ping": Method(lifecycle.ping, LEGACY_ONLY),
        "prompts/get": Method(prompts.get_prompt, BOTH, is_call=True),
        "prompts/list": _list("prompts"),
        "resources/directory/read": Method(resources.read_directory, MODERN_ONLY, is_list=True),
        "resources/list": _list("resources"),
        "resources/read": Method(resources.read_resource, BOTH, is_call=True),
        "resources/templates/list": _list("resourceTemplates"),
        "resources/subscribe": Method(subscriptions.subscribe, LEGACY_ONLY),
        "resources/unsubscribe": Method(subscriptions.unsubscribe, LEGACY_ONLY),
        "server/discover": Method(lifecycle.discover, MODERN_ONLY),
        # Limits treat this method as a list, because it returns list entries, like `resources/directory/read`.
        "skills/get": Method(resources.get_skill, MODERN_ONLY, is_list=True),
        "skills/list": _list("skills", MODERN_ONLY),
        "subscriptions/listen": Method(subscriptions.listen, MODERN_ONLY),
        "tasks/cancel": Method(tasks.cancel, MODERN_ONLY, is_of_tasks=True),
        "tasks/get": Method(tasks.get, MODERN_ONLY, is_of_tasks=True),
        "tasks/update": Method(tasks.update, MODERN_ONLY, is_of_tasks=True),
        "tools/call": Method(tools.call_tool, BOTH, is_call=True, refused=tools.refused),
        "tools/list": _list("tools"),
    }
)


def check_method(method: str, era: Era, terms: ClientTerms) -> None:
    """Raise RpcError if the era does not have the method, or the client has not declared the method's extension."""
    found = METHODS.get(method)
    if found is None or era not in found.eras:
        if method == "initialize" and era is Era.LEGACY:
            raise RpcError(ErrorCode.INVALID_REQUEST, "This session is already initialized")
        raise RpcError(ErrorCode.METHOD_NOT_FOUND, f"Method not found: {method}")
    if found.is_of_tasks and not declares_tasks(terms.capabilities, terms.revision):
        raise missing_extension()


async def run_method(call: Call) -> Reply:
    """Run the method of a call. Observers are notified when the call begins and when it ends or is cancelled."""
    method = METHODS[call.method]
    observers = call.server.observers if method.is_call else call.server.observers_of_all
    trace, fields = call.trace, {CALL: call.id}
    token = LOG_CONTEXT.set(fields if trace is None else {**fields, TRACE_ID: trace.trace_id})
    began, ending = time.monotonic(), None
    _notify([observer.began for observer in observers], call)
    try:
        reply, ending = await _answer(call, method, began)
        return reply
    finally:
        ending = ending or CallResult(outcome=Outcome.CANCELLED, seconds=time.monotonic() - began)
        _notify([observer.ended for observer in observers], call, ending)
        LOG_CONTEXT.reset(token)


async def _answer(call: Call, method: Method, began: float) -> tuple[Reply, CallResult]:
    progress, limit = None, None
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
        # Encode the result inside `try`, because encoding may fail.
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
    seconds = time.monotonic() - began
    return reply, CallResult(outcome=outcome, seconds=seconds, error=failure, limit=limit, response=reply.body)


def _notify(methods: Iterable[Callable[..., None]], *facts: object) -> None:
    for method in methods:
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
