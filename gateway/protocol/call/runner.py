"""Runs a primitive for a call or a task.

Order: rate limit, `confirm`, permit and deadline, work and output, release. Access and arguments are checked earlier.
While an input request is open, the permit is released and the deadline is paused.
"""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from types import TracebackType
from typing import Final, Self, TypeVar

from msgspec.structs import replace

from gateway.access.claims import digest_of_facts
from gateway.catalog.catalog import NO_LIMITS, CallLimits
from gateway.catalog.primitives import Primitive, Prompt, Resource, ResourceTemplate, Tool
from gateway.config.models.quantities import RateLimit
from gateway.deadline import Deadline, DeadlineExceededError
from gateway.errors import (
    ExecutionError,
    InsufficientScopeError,
    MissingCapabilityError,
    OverLimitError,
    ResourceNotFoundError,
    ResourceUnreadableError,
)
from gateway.executors.invocation import AwaitingInput, Invocation, Relayed, ToolResult
from gateway.json_types import JsonObject, empty
from gateway.language.templates.caller import CALLER
from gateway.limits.concurrency import ConcurrencyPermit
from gateway.limits.fair_semaphore import Limit
from gateway.plugin import Context
from gateway.protocol.call.call import Call
from gateway.protocol.call.call_context import CallContext
from gateway.protocol.call.input_requests.confirmation import confirm
from gateway.protocol.call.input_requests.mrtr_requester import brings_answers, claim_answers
from gateway.telemetry.trace import Trace, TracedStep
from gateway.threads import MAX_ON_LOOP, NoThreadFreeError, shaped
from gateway.wire import jsonrpc

T = TypeVar("T")

_PRIMITIVE: Final = "mcp_gateway.primitive"
_SECTIONS: Final[Mapping[type[Primitive], str]] = {
    Tool: "tools",
    Resource: "resources",
    ResourceTemplate: "resources",
    Prompt: "prompts",
}


def check_access(primitive: Primitive, call: Call) -> None:
    """Raise InsufficientScopeError if the caller lacks a scope."""
    if primitive.access.scopes and not call.caller.identity.holds(primitive.access.scopes):
        raise InsufficientScopeError(primitive.access.scopes)


def check_client(primitive: Primitive, call: Call) -> None:
    """Raise MissingCapabilityError if the client lacks a required capability."""
    if not primitive.required_capabilities:
        return
    missing = {
        name: wanted
        for name, wanted in primitive.required_capabilities.items()
        if call.terms.capabilities.get(name) is None
    }
    if missing:
        raise MissingCapabilityError(missing)


class Run(CallContext, eq=False):
    """One run of a primitive: the `Invocation` of an executor and the `Context` of a plugin.

    Entering counts the run against the `rate_limit`. `start` acquires the permit and starts the clock. Exiting releases
    the permit.
    """

    arguments: JsonObject = empty()
    variables: JsonObject = empty()
    _whole: "Run | None" = None
    _trace: Trace | None = None
    _step: AbstractContextManager[TracedStep] | None = None

    async def __aenter__(self) -> Self:
        """Count the run. Raise OverLimitError if the primitive was called too often."""
        if self.primitive.rate_limit is not None and (limit := self._rate_limit) is not None:
            await self.call.server.rate_limiter.acquire(self._rate_name, limit, caller=self._rate_key)
        if not self.is_completion and self.outer is None and brings_answers(self.call):
            await claim_answers(self.primitive, self.call)
            self.open_requester()
        return self

    async def start(self, arguments: JsonObject) -> Invocation:
        """Wait for a permit. Raise ExecutionError if none is free before the deadline."""
        primitive = self.primitive
        self.arguments, self.variables = arguments, self.with_caller(arguments)
        # The deadline includes the wait for the permit.
        self._began = asyncio.get_running_loop().time()
        call, concurrency = self.call, self.call.server.concurrency
        key = f"{call.method if self.outer is None else 'resources/read'}/{primitive.name}"
        limit = (primitive.concurrency, primitive.queue)
        # The outer run holds the caller's permits. An inner run could wait for its own outer run.
        limits = call.catalog.limits if self.outer is None else NO_LIMITS
        permit = None
        if limits.of_caller is None and limits.of_all is None:
            permit = concurrency.try_acquire(key, limit)
        self._permit = permit or await self._acquired(key, limit, limits)
        if call.server.is_traced:
            self._step = self.trace.step("run", kind="internal", facts={_PRIMITIVE: primitive.name})
            self._step.__enter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Release the permit. A run that ends with `AwaitingInput` is not counted, because it will be repeated."""
        # Set first, so that background tasks of the run send nothing more.
        self.is_over = True
        if self._step is not None:
            self._step.__exit__(kind, error, trace)
        if self._permit is not None:
            # Released before the waits below, which must not delay other calls.
            self._permit.release()
        if self.call.activity.has_sent and self.outer is None:
            await self._send_rest(error)
        try:
            if self._opened is not None:
                await self._opened.close(error)
        except AwaitingInput:
            await self._refund()
            raise
        if isinstance(error, AwaitingInput):
            await self._refund()

    async def _send_rest(self, error: BaseException | None) -> None:
        """Send queued messages before the response, or drop them if the call was cancelled."""
        try:
            queue = self.call.activity.queue
            if isinstance(error, asyncio.CancelledError):
                queue.cancel()
            await queue.drain()
        except asyncio.CancelledError as cancelled:
            if self._opened is not None:
                await self._opened.close(cancelled)  # otherwise its requests stay open until `ask_timeout`
            raise

    async def _acquired(self, key: str, limit: Limit, limits: CallLimits) -> ConcurrencyPermit:
        call = self.call
        try:
            return await call.server.concurrency.acquire(
                key,
                limit,
                caller=call.caller.rate_limit_key,
                deadline=self.deadline.at,
                of_caller=limits.of_caller,
                of_all=limits.of_all,
            )
        finally:
            call.activity.note_wait("concurrency", self._began)

    @property
    def context(self) -> Context:
        return self._whole or self

    def narrowed(self, *, arguments: JsonObject, deadline: Deadline) -> Invocation:
        variables = self.with_caller(arguments)
        return replace(self, arguments=arguments, variables=variables, _deadline=deadline, _whole=self._whole or self)

    def with_caller(self, arguments: JsonObject) -> JsonObject:
        """Return the variables of templates: the arguments, and `caller` if a template reads it."""
        # The facts come last, because an open schema allows an argument with the same name.
        return {**arguments, CALLER: self.call.caller_facts} if self.primitive.caller_facts else arguments

    @property
    def caller_values(self) -> bytes:
        return digest_of_facts(self.call.caller_facts, self.primitive.caller_facts)

    @property
    def trace(self) -> Trace:
        if self._trace is None:
            self._trace = self.call.server.trace(self.call.trace)
        return self._trace

    async def read_resource(self, uri: str) -> Sequence[JsonObject]:
        contents, _ = await read_resource(uri, self.call, self)
        return contents

    @property
    def _rate_key(self) -> str:
        caller, template = self.call.caller, self.primitive.rate_key
        if template is None:
            return caller.rate_limit_key
        # Includes the realm, because two issuers can use the same value for different tenants.
        return f"key {caller.realm} {template.render({CALLER: self.call.caller_facts})}"

    @property
    def _rate_limit(self) -> RateLimit | None:
        # The call of a repeated task was counted before.
        if self.is_completion or (self.call.task is not None and self.call.task.is_rerun):
            return None
        return self.primitive.rate_limit

    @property
    def _rate_name(self) -> str:
        return f"{_SECTIONS[type(self.primitive)]}.{self.primitive.name}.rate_limit"

    async def _refund(self) -> None:
        if (limit := self._rate_limit) is not None:
            await self.call.server.rate_limiter.refund(self._rate_name, limit, caller=self._rate_key)


async def read_resource(uri: str, call: Call, outer: Run | None = None) -> tuple[Sequence[JsonObject], JsonObject]:
    """Return the contents of a resource in the form of 2026-07-28, and the `_meta` of an upstream server's result.

    Views do not restrict a read by an `outer` run.

    Raises:
        ResourceNotFoundError: no resource has this URI.
        ResourceUnreadableError: the read failed.
    """
    stored = await call.server.services.output_store.read(uri, caller=call.caller.owner_key)
    if stored is not None:
        return [stored], {}
    catalog = call.catalog if outer is None else call.catalog.beyond or call.catalog
    found = catalog.resource(uri)
    if found is None:
        raise ResourceNotFoundError(uri)
    resource, variables = found
    check_access(resource, call)
    check_client(resource, call)
    try:
        async with Run(call, resource, outer=outer) as run:
            invocation = await run.start(variables)
            outcome = await resource.executor.execute(invocation)
            contents = await shaped(
                partial(resource.contents, outcome, uri),
                size=outcome.size,
                call=invocation,
                threads=call.server.services.worker_threads,
            )
            return contents, call.catalog.sanitizer.json(outcome.meta) if isinstance(outcome, Relayed) else {}
    except ResourceNotFoundError as error:
        raise ResourceNotFoundError(uri) from error  # with the requested URI instead of the backend's
    except OverLimitError:
        raise  # see `Method.refused`
    except ExecutionError as error:
        raise ResourceUnreadableError(uri, call.catalog.sanitizer.text(str(error))) from error


_DECODING: Final = "Decoding the files"


async def prepared_arguments(tool: Tool, arguments: JsonObject, call: Call) -> JsonObject:
    """Prepare the arguments of a run (`CompiledArguments.prepare`). Large files are decoded in a thread.

    Call this before the run, so that invalid arguments use neither permit nor rate limit.

    Raises:
        ExecutionError: the arguments are invalid, or decoding took too long.
    """
    is_small = tool.arguments.size_of_files(arguments) <= MAX_ON_LOOP
    prepared = tool.arguments.prepare(arguments) if is_small else await _prepared_in_thread(tool, arguments, call)
    # The earlier check does not cover objects that are sent as text. Its count includes the message and `params`.
    if prepared is not arguments and jsonrpc.is_deeper(prepared, call.server.max_depth - 2):
        raise ExecutionError(
            f"The arguments are nested more than {call.server.max_depth} levels deep (limits.request_depth)"
        )
    return prepared


async def _prepared_in_thread(tool: Tool, arguments: JsonObject, call: Call) -> JsonObject:
    seconds = tool.timeout.total_seconds()
    threads = call.server.services.worker_threads
    try:
        deadline = asyncio.get_running_loop().time() + seconds
        return await threads.run(partial(tool.arguments.prepare, arguments), deadline=deadline)
    except NoThreadFreeError as error:
        raise ExecutionError(f"{_DECODING} did not start: all threads were busy for {seconds:g} s") from error
    except TimeoutError as error:
        raise DeadlineExceededError(_DECODING, seconds) from error


async def run_tool(call: Call, tool: Tool, arguments: JsonObject) -> ToolResult:
    """Run a tool with prepared arguments.

    Raises:
        ExecutionError: the run failed. The message is for the model.
        RpcError: a plugin raised it, or the client does not support an input request.
        AwaitingInput: the client must respond to input requests first.
    """
    async with Run(call, tool) as run:
        if tool.confirm is not None:
            await confirm(tool.confirm, run.with_caller(arguments), call, run.open_requester())
        invocation = await run.start(arguments)
        outcome = await tool.executor.execute(invocation)
        return await shaped(
            partial(tool.result, outcome, invocation),
            size=outcome.size,
            call=invocation,
            threads=call.server.services.worker_threads,
        )
