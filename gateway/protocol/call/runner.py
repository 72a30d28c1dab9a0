"""Runs a primitive for a call: rate limit, permit, deadline, context. One way for tools, resources and prompts.

Order: rate limit → `confirm` → permit and deadline → work and output → release. Access and validation come before.
While an input request is open, neither the permit nor the deadline is used up.
"""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from types import TracebackType
from typing import Final, Self, TypeVar

from msgspec.structs import replace

from gateway.access.caller_facts import digest_of_facts
from gateway.catalog.catalog import NO_LIMITS, CallLimits
from gateway.catalog.primitives import Primitive, Prompt, Resource, ResourceTemplate, Tool
from gateway.config.models.quantities import RateLimit
from gateway.deadline import Deadline
from gateway.errors import (
    ExecutionError,
    InsufficientScopeError,
    MissingCapabilityError,
    OverLimitError,
    ResourceNotFoundError,
    ResourceUnreadableError,
)
from gateway.executors.invocation import AwaitingInput, Invocation, Relayed
from gateway.json_types import JsonObject, empty
from gateway.language.templates.caller import CALLER
from gateway.limits.concurrency import ConcurrencyPermit
from gateway.limits.fair_semaphore import Limit
from gateway.plugin import Context
from gateway.protocol.call.call import Call
from gateway.protocol.call.call_context import CallContext
from gateway.protocol.call.input_requests.mrtr_requester import brings_answers, claim_answers
from gateway.protocol.call.not_found import unknown_resource
from gateway.telemetry.trace import Trace, TracedStep
from gateway.threads import shaped

T = TypeVar("T")

_PRIMITIVE: Final = "mcp_gateway.primitive"
_SECTIONS: Final[Mapping[type[Primitive], str]] = {
    Tool: "tools",
    Resource: "resources",
    ResourceTemplate: "resources",
    Prompt: "prompts",
}


def check_access(primitive: Primitive, call: Call) -> None:
    """Raises: InsufficientScopeError: the caller may see the primitive, and lacks a scope that it needs."""
    if primitive.access.scopes and not call.caller.identity.holds(primitive.access.scopes):
        raise InsufficientScopeError(primitive.access.scopes)


def check_client(primitive: Primitive, call: Call) -> None:
    """Raises: MissingCapabilityError: the client did not declare what the primitive requires."""
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
    """One run of a primitive: the `Invocation` that its executor is handed, with the `Context` of its author's code.

    A context manager: entering counts the run against the primitive's `rate_limit`, `start` takes the permit and starts
    the clock, and exiting gives the permit back. What a plain run does not use (input requests, suspension, trace) is
    made when it is touched.
    """

    arguments: JsonObject = empty()
    variables: JsonObject = empty()
    _whole: "Run | None" = None
    """The run that this is a narrowed part of."""
    _trace: Trace | None = None
    _step: AbstractContextManager[TracedStep] | None = None

    async def __aenter__(self) -> Self:
        """Begin.

        Raises:
            OverLimitError: the primitive was called too often.
            InvalidRetryError: the request's `inputResponses` or `requestState` cannot be.
            StoreAwayError: whether another replica has used the state cannot be known now.
        """
        if self.primitive.rate_limit is not None and (limit := self._rate_limit) is not None:
            await self.call.server.rate_limiter.acquire(self._rate_name, limit, caller=self._rate_key)
        if not self.is_completion and self.outer is None and brings_answers(self.call):
            await claim_answers(self.primitive, self.call)
            self.open_requester()
        return self

    async def start(self, arguments: JsonObject) -> Invocation:
        """Wait for the run's turn, and return the invocation.

        Raises:
            OverLimitError: too many calls wait already.
            ExecutionError: its turn did not come before the deadline.
        """
        primitive = self.primitive
        self.arguments, self.variables = arguments, self.with_caller(arguments)
        # From here on the deadline counts, the wait for a turn included.
        self._began = asyncio.get_running_loop().time()
        call, concurrency = self.call, self.call.server.concurrency
        key = f"{call.method if self.outer is None else 'resources/read'}/{primitive.name}"
        limit = (primitive.concurrency, primitive.queue)
        # The outer run holds the caller's permits: an inner one that needed more could wait for itself.
        limits = call.catalog.limits if self.outer is None else NO_LIMITS
        permit = None
        if limits.of_caller is None and limits.of_all is None:
            permit = concurrency.try_acquire(key, limit)  # nearly always: there is nothing to wait for
        self._permit = permit or await self._turn(key, limit, limits)
        if call.server.is_traced:
            self._step = self.trace.step("run", kind="internal", facts={_PRIMITIVE: primitive.name})
            self._step.__enter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End: a run that ends with input requests counts against no rate, for it will come again.

        Raises:
            AwaitingInput: the client has to answer first (modern).
        """
        # First, so that nothing is sent any more by what the work may have left running.
        self.is_over = True
        if self._step is not None:
            self._step.__exit__(kind, error, trace)
        if self._permit is not None:
            # Before whatever waits below: the next call need not wait for it, too.
            self._permit.release()
        if self.call.activity.has_sent or self.has_switched:
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
        """Send before the answer what was said before the end, unless nobody waits for that."""
        try:
            if self.call.activity.has_sent and self.outer is None:
                queue = self.call.activity.queue
                if isinstance(error, asyncio.CancelledError):
                    queue.cancel()
                await queue.drain()
            if self.has_switched:  # its caller's next request may come to another replica
                await self.call.server.notifier.others_follow()
        except asyncio.CancelledError as cancelled:
            if self._opened is not None:
                await self._opened.close(cancelled)  # or its questions would stay open until `ask_timeout`
            raise

    async def _turn(self, key: str, limit: Limit, limits: CallLimits) -> ConcurrencyPermit:
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
        """Return the variables of templates: the arguments, and `caller` if a template of the primitive reads it."""
        # The facts come last: an argument with that name, which an open schema allows, must not replace them.
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
        """Read a resource for this run, as its caller may."""
        contents, _ = await read_resource(uri, self.call, self)
        return contents

    @property
    def _rate_key(self) -> str:
        caller, template = self.call.caller, self.primitive.rate_key
        if template is None:
            return caller.rate_limit_key
        # With the realm: two issuers can use the same value for different tenants.
        return f"key {caller.realm} {template.render({CALLER: self.call.caller_facts})}"

    @property
    def _rate_limit(self) -> RateLimit | None:
        # A task that runs again is the same call, which was counted when it came.
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
    """Read a resource as the sender of `call` may, and return its contents in the form of 2026-07-28.

    The second value is the `_meta` of another server's result, if there is any.

    A read for another run, of a tool or a prompt of this call, is narrowed by no view.

    Raises:
        ResourceNotFoundError: nothing serves this URI.
        ResourceUnreadableError: it could not be read.
    """
    stored = await call.server.services.output_store.read(uri, caller=call.caller.owner_key)
    if stored is not None:
        return [stored], {}
    catalog = call.catalog if outer is None else call.catalog.beyond or call.catalog
    found = catalog.resource(uri)
    if found is None:
        raise unknown_resource(uri, call)
    resource, variables = found
    check_access(resource, call)
    check_client(resource, call)
    try:
        async with Run(call, resource, outer=outer) as run:
            invocation = await run.start(variables)
            outcome = await resource.executor.execute(invocation)
            contents = await shaped(
                partial(resource.contents.contents, outcome, uri=uri),
                size=outcome.size,
                call=invocation,
                threads=call.server.services.worker_threads,
            )
            return contents, call.catalog.sanitizer.json(outcome.meta) if isinstance(outcome, Relayed) else {}
    except ResourceNotFoundError as error:
        raise unknown_resource(uri, call) from error  # under the URI that was asked for, not the backend's
    # It is an `ExecutionError`, too; what limits refuse has an answer of its own (`Method.refused`).
    except OverLimitError:
        raise
    except ExecutionError as error:
        raise ResourceUnreadableError(uri, call.catalog.sanitizer.text(str(error))) from error
