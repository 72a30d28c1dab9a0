"""resources/read (server/resources)."""

from collections.abc import Sequence
from datetime import timedelta
from functools import partial

from gateway.catalog.primitives import Resource, ResourceTemplate
from gateway.errors import ExecutionError, OverLimitError, ResourceNotFoundError, ResourceUnreadableError
from gateway.json_types import Json, JsonObject
from gateway.protocol import results
from gateway.protocol.call.call import Call
from gateway.protocol.call.runner import Run, check_access, check_client
from gateway.protocol.input_requests.mrtr_requester import brings_answers
from gateway.protocol.methods import params
from gateway.protocol.methods.not_found import unknown_resource
from gateway.threads import shaped
from gateway.wire import downgrade


async def read_resource(call: Call) -> JsonObject:
    uri = params.string(call.params, "uri")
    contents = await read(uri, call)
    wire: dict[str, Json] = {"contents": downgrade.resource_contents(contents, call.revision)}
    return {**wire, **_cache_hints(call)}


async def read(uri: str, call: Call, outer: Run | None = None) -> Sequence[JsonObject]:
    """Read a resource as the sender of `call` may, and return its contents in the form of 2026-07-28.

    A read for another run, of a tool or a prompt of this call, is narrowed by no view.

    Raises:
        ResourceNotFoundError: nothing serves this URI.
        ResourceUnreadableError: it could not be read.
    """
    stored = await call.server.services.output_store.read(uri, caller=call.caller.owner_key)
    if stored is not None:
        return [stored]
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
            return await shaped(
                partial(resource.contents.contents, outcome, uri=uri),
                size=outcome.size,
                call=invocation,
                threads=call.server.services.worker_threads,
            )
    except ResourceNotFoundError as error:
        raise unknown_resource(uri, call) from error  # under the URI that was asked for, not the backend's
    # It is an `ExecutionError`, too; what limits refuse has an answer of its own (`Method.refused`).
    except OverLimitError:
        raise
    except ExecutionError as error:
        raise ResourceUnreadableError(uri, call.catalog.sanitizer.text(str(error))) from error


def _cache_hints(call: Call) -> dict[str, Json]:
    """A parked output is its caller's alone, and so is what was read with the help of the user's answers."""
    resource = call.target
    if not isinstance(resource, Resource | ResourceTemplate) or brings_answers(call):
        return results.cache_hints(timedelta(0), is_shared=False)
    return results.cache_hints(
        resource.cache_ttl or timedelta(0), is_shared=resource.is_shared and not resource.access.scopes
    )
