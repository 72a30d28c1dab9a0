"""Run a primitive for a request: its place among those that may run, its clock, its context. One way for all kinds.

Order: place and clock → work. Access, validation and `confirm` come before, output after. Neither the place nor the
clock is used up while a question is open.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager, nullcontext
from dataclasses import replace
from typing import Final, TypeVar

from gateway.access.rates import Rates
from gateway.access.slots import HeldSlot
from gateway.catalog.primitives import NO_LIMITS, Primitive, Prompt, Resource, ResourceTemplate, Tool
from gateway.config.rates import RateLimit
from gateway.errors import InsufficientScopeError, MissingCapabilityError
from gateway.executors.clock import Clock
from gateway.executors.invocation import AwaitingInput, Invocation
from gateway.json_types import JsonObject
from gateway.protocol.asker import Asker, Pause
from gateway.protocol.interactions import CallContext
from gateway.protocol.questions import Question
from gateway.protocol.request import RequestContext, Runtime

T = TypeVar("T")

_PRIMITIVE: Final = "mcp_gateway.primitive"


def check_access(primitive: Primitive, request: RequestContext) -> None:
    """Raises: InsufficientScopeError: the caller may see the primitive, and lacks a scope that it needs."""
    if not request.exchange.caller.identity.holds(primitive.access.scopes):
        raise InsufficientScopeError(primitive.access.scopes)


def check_client(primitive: Primitive, request: RequestContext) -> None:
    """Raises: MissingCapabilityError: the client did not declare what the primitive requires."""
    missing = {
        name: wanted
        for name, wanted in primitive.required_capabilities.items()
        if request.client_capabilities.get(name) is None
    }
    if missing:
        raise MissingCapabilityError(missing)


def counted(primitive: Primitive, request: RequestContext, runtime: Runtime) -> AbstractContextManager[None]:
    """A call that counts against the primitive's `rate_limit`, unless it ends with a question: it will come again.

    Raises:
        OverLimitError: on entering; there were too many.
    """
    if primitive.rate_limit is None:
        return _UNCOUNTED
    return _counted(primitive, primitive.rate_limit, runtime.rates, caller=request.exchange.caller.payer)


@contextmanager
def _counted(primitive: Primitive, limit: RateLimit, rates: Rates, *, caller: str) -> Iterator[None]:
    name = f"{_SECTIONS[type(primitive)]}.{primitive.name}.rate_limit"
    rates.spend(name, limit, caller=caller)
    try:
        yield
    except AwaitingInput:
        rates.refund(name, limit, caller=caller)
        raise


_UNCOUNTED: Final = nullcontext()
_SECTIONS: Final[Mapping[type[Primitive], str]] = {
    Tool: "tools",
    Resource: "resources",
    ResourceTemplate: "resources",
    Prompt: "prompts",
}


@asynccontextmanager
async def invocation(  # noqa: PLR0913 - all that a call is
    method: str,
    primitive: Primitive,
    arguments: JsonObject,
    request: RequestContext,
    runtime: Runtime,
    *,
    asker: Asker | None,
) -> AsyncIterator[Invocation]:
    """The invocation of `primitive`, once its turn has come.

    Raises:
        OverLimitError: too many calls wait already.
        ExecutionError: its turn did not come before the deadline.
    """
    clock = Clock(asyncio.get_running_loop().time() + primitive.timeout.total_seconds())
    slot = await _slot(f"{method}/{primitive.name}", primitive, request, runtime, deadline=clock.deadline)
    pause = _Pause(clock, slot)

    async def read(uri: str) -> Sequence[JsonObject]:
        inner = replace(request, is_inner=True)
        return await runtime.read(uri, inner, runtime, asker=None if asker is None else _Inner(asker, pause))

    context = CallContext(request, runtime, asker=asker, pause=pause, read_resource=read)
    trace = runtime.trace(request.trace)
    try:
        with trace.step("run", kind="internal", facts={_PRIMITIVE: primitive.name}):
            yield Invocation(
                arguments=arguments,
                context=context,
                clock=clock,
                slot=slot,
                caller=request.exchange.caller.key,
                call_id=request.call_id,
                trace=trace,
                headers=request.exchange.caller.headers,
            )
    finally:
        context.close()
        slot.release()


async def _slot(
    key: str, primitive: Primitive, request: RequestContext, runtime: Runtime, *, deadline: float
) -> HeldSlot:
    limits = NO_LIMITS if request.is_inner else request.catalog.limits
    return await runtime.slots.acquire(
        key,
        (primitive.concurrency, primitive.queue),
        caller=request.exchange.caller.payer,
        deadline=deadline,
        of_caller=limits.of_caller,
        of_all=limits.of_all,
    )


class _Pause:
    """While questions are open, the clock stands still and others may use the place."""

    def __init__(self, clock: Clock, slot: HeldSlot) -> None:
        self._clock = clock
        self._slot = slot
        self._open = 0
        self._returning = asyncio.Lock()

    @asynccontextmanager
    async def __call__(self) -> AsyncIterator[None]:
        self._open += 1
        self._clock.stop()
        self._slot.lend()
        try:
            yield
        except asyncio.CancelledError:
            self._open -= 1
            if not self._open:
                self._slot.seize()
                self._clock.go_on()
            raise
        except BaseException:
            await self._end_one()
            raise
        await self._end_one()

    async def _end_one(self) -> None:
        """A question was answered, or will not be: go on, unless another one is open or is put meanwhile."""
        self._open -= 1
        try:
            async with self._returning:
                if not self._open:
                    await self._slot.take_back()
        finally:
            if self._open:
                self._slot.lend()
            else:
                self._slot.seize()  # where the wait was cancelled
                self._clock.go_on()


class _Inner:
    """The asker of a call within a call: while it asks, the outer one pauses too."""

    def __init__(self, asker: Asker, outer: Pause) -> None:
        self._asker = asker
        self._outer = outer

    async def ask(
        self, questions: Mapping[str, Question], *, pause: Pause, proven: bool = False
    ) -> Mapping[str, JsonObject]:
        @asynccontextmanager
        async def both() -> AsyncIterator[None]:
            async with self._outer(), pause():
                yield

        return await self._asker.ask(questions, pause=both, proven=proven)

    async def once(self, key: str, function: Callable[[], Awaitable[T]]) -> T:
        return await self._asker.once(key, function)
