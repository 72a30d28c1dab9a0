"""Run a primitive for a request: its place among those that may run, its deadline, its context. One way for all kinds.

Order: place and clock → work. Access, validation and questions come before, output after.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from gateway.catalog.primitives import Primitive
from gateway.errors import MissingCapabilityError
from gateway.executors.invocation import Invocation
from gateway.json_types import JsonObject
from gateway.protocol.interactions import CallContext
from gateway.protocol.request import RequestContext, Runtime


def check_client(primitive: Primitive, request: RequestContext) -> None:
    """Raises: MissingCapabilityError: the client did not declare what the primitive requires."""
    missing = {
        name: wanted
        for name, wanted in primitive.required_capabilities.items()
        if name not in request.client_capabilities
    }
    if missing:
        raise MissingCapabilityError(missing)


@asynccontextmanager
async def invocation(
    kind: str, primitive: Primitive, arguments: JsonObject, request: RequestContext, runtime: Runtime
) -> AsyncIterator[Invocation]:
    """The invocation of `primitive`, once its turn has come.

    Raises:
        ExecutionError: too many calls wait already, or its turn did not come before the deadline.
    """
    deadline = asyncio.get_running_loop().time() + primitive.timeout.total_seconds()

    async def read(uri: str) -> Sequence[JsonObject]:
        return await runtime.read(uri, request, runtime)

    context = CallContext(request, runtime, read_resource=read)
    slot = await runtime.slots.acquire(
        f"{kind}/{primitive.name}", concurrency=primitive.concurrency, queue=primitive.queue, deadline=deadline
    )
    try:
        yield Invocation(
            arguments=arguments,
            context=context,
            deadline=deadline,
            slot=slot,
            caller=request.exchange.caller.key,
            headers=request.exchange.caller.headers,
        )
    finally:
        context.close()
        slot.release()
