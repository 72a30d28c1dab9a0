"""Run a primitive for a request: its place among those that may run, its clock, its context. One way for all kinds.

Order: place and clock → work. Access, validation and `confirm` come before, output after. Neither the place nor the
clock is used up while a question is open.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final

from gateway.access.slots import HeldSlot
from gateway.catalog.primitives import Primitive
from gateway.errors import MissingCapabilityError
from gateway.executors.clock import Clock
from gateway.executors.invocation import Invocation
from gateway.json_types import JsonObject
from gateway.protocol.asker import Asker
from gateway.protocol.asking import open_asker
from gateway.protocol.interactions import CallContext
from gateway.protocol.request import RequestContext, Runtime

_ASKING: Final = ("tools/call", "prompts/get", "resources/read")
"""Methods whose calls may ask the client (2026-07-28 basic/patterns/mrtr)."""


def check_client(primitive: Primitive, request: RequestContext) -> None:
    """Raises: MissingCapabilityError: the client did not declare what the primitive requires."""
    missing = {
        name: wanted
        for name, wanted in primitive.required_capabilities.items()
        if name not in request.client_capabilities
    }
    if missing:
        raise MissingCapabilityError(missing)


def asker_for(method: str, primitive: Primitive, request: RequestContext, runtime: Runtime) -> Asker | None:
    """How a call of `primitive` may ask its client; None where the method does not allow it.

    Raises:
        RpcError: -32602, the answers that came with the request cannot be.
    """
    if method not in _ASKING:
        return None
    return open_asker(primitive, request, method=method, seal=runtime.seal, patience=primitive.ask_timeout)


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
        ExecutionError: too many calls wait already, or its turn did not come before the deadline.
    """
    clock = Clock(asyncio.get_running_loop().time() + primitive.timeout.total_seconds())
    slot = await runtime.slots.acquire(
        f"{method}/{primitive.name}",
        concurrency=primitive.concurrency,
        queue=primitive.queue,
        deadline=clock.deadline,
    )

    async def read(uri: str) -> Sequence[JsonObject]:
        return await runtime.read(uri, request, runtime, asker=asker)

    context = CallContext(request, runtime, asker=asker, pause=_Pause(clock, slot), read_resource=read)
    try:
        yield Invocation(
            arguments=arguments,
            context=context,
            clock=clock,
            slot=slot,
            caller=request.exchange.caller.key,
            headers=request.exchange.caller.headers,
        )
    finally:
        context.close()
        slot.release()


class _Pause:
    """While questions are open, the clock stands still and others may use the place."""

    def __init__(self, clock: Clock, slot: HeldSlot) -> None:
        self._clock = clock
        self._slot = slot
        self._open = 0

    @asynccontextmanager
    async def __call__(self) -> AsyncIterator[None]:
        self._open += 1
        if self._open == 1:
            self._clock.stop()
            self._slot.lend()
        try:
            yield
        except BaseException:
            self._open -= 1
            if not self._open:
                self._slot.seize()
                self._clock.go_on()
            raise
        self._open -= 1
        if not self._open:
            await self._slot.take_back()
            self._clock.go_on()
