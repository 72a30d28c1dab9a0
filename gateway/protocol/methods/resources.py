"""resources/list, resources/templates/list and resources/read (server/resources)."""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from datetime import timedelta
from typing import Final

from gateway.catalog.primitives import Resource, ResourceTemplate
from gateway.errors import ExecutionError, OverLimitError, ResourceNotFoundError, ResourceUnreadableError
from gateway.json_types import Json, JsonObject
from gateway.protocol import results, revisions
from gateway.protocol.asker import Asker
from gateway.protocol.asking import open_asker
from gateway.protocol.methods import params
from gateway.protocol.request import RequestContext, Runtime
from gateway.protocol.running import check_access, check_client, counted, invocation
from gateway.protocol.unknown import unknown_resource


async def list_resources(request: RequestContext, runtime: Runtime) -> bytes:
    return runtime.pages.page(
        "resources", catalog=request.catalog, revision=request.revision, cursor=request.params.get("cursor")
    )


async def list_resource_templates(request: RequestContext, runtime: Runtime) -> bytes:
    return runtime.pages.page(
        "resourceTemplates", catalog=request.catalog, revision=request.revision, cursor=request.params.get("cursor")
    )


async def read_resource(request: RequestContext, runtime: Runtime) -> JsonObject:
    uri = params.string(request.params, "uri")
    contents = await read(uri, request, runtime, asker=None)
    wire: dict[str, Json] = {"contents": revisions.resource_contents(contents, request.revision)}
    return {**wire, **_cache_hints(uri, request)}


async def read(uri: str, request: RequestContext, runtime: Runtime, *, asker: Asker | None) -> Sequence[JsonObject]:
    """A resource's contents as the sender of `request` may read them, in the form of 2026-07-28.

    `asker` is that of the call which needs them, if this is not a request for the resource itself.

    Raises:
        ResourceNotFoundError: nothing serves this URI.
        ResourceUnreadableError: it could not be read.
    """
    parked = runtime.services.parked.read(uri, caller=request.exchange.caller.key)
    if parked is not None:
        return [parked]
    found = request.catalog.resource(uri)
    if found is None:
        raise unknown_resource(uri, request, runtime)
    return await _contents(uri, *found, request, runtime, asker)


async def _contents(  # noqa: PLR0913, PLR0917 - what was found, and all that a call is
    uri: str,
    resource: Resource | ResourceTemplate,
    variables: Mapping[str, str],
    request: RequestContext,
    runtime: Runtime,
    asker: Asker | None,
) -> Sequence[JsonObject]:
    check_access(resource, request)
    check_client(resource, request)
    opened = open_asker(resource, request, runtime, method="resources/read") if asker is None else nullcontext(asker)
    try:
        with counted(resource, request, runtime):
            async with (
                opened as way,
                invocation("resources/read", resource, variables, request, runtime, asker=way) as call,
            ):
                return resource.contents.contents(await resource.executor.execute(call), uri=uri)
    except ResourceNotFoundError as error:
        raise unknown_resource(
            uri, request, runtime
        ) from error  # as it was asked for, not as the backend would write it
    except OverLimitError:
        raise
    except ExecutionError as error:
        raise ResourceUnreadableError(uri, request.catalog.redactor.text(str(error))) from error


def _cache_hints(uri: str, request: RequestContext) -> dict[str, Json]:
    """A parked output is its caller's alone, and so is what was read with the help of the user's answers."""
    found = request.catalog.resource(uri)
    if found is None or not request.params.keys().isdisjoint(_ANSWERS):
        return results.cache_hints(timedelta(0), is_shared=False)
    resource, _ = found
    return results.cache_hints(
        resource.cache_ttl or timedelta(0), is_shared=resource.is_shared and not resource.access.scopes
    )


_ANSWERS: Final = ("inputResponses", "requestState")
"""What a retry of 2026-07-28 brings along (basic/patterns/mrtr)."""
