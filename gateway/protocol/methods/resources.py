"""resources/read (server/resources)."""

from datetime import timedelta

from gateway.catalog.primitives import Resource, ResourceTemplate
from gateway.json_types import Json, JsonObject
from gateway.protocol import results
from gateway.protocol.call import runner
from gateway.protocol.call.call import Call
from gateway.protocol.call.input_requests.mrtr_requester import brings_answers
from gateway.protocol.methods import params
from gateway.wire import downgrade, meta


async def read_resource(call: Call) -> JsonObject:
    uri = params.string(call.params, "uri")
    contents, others_meta = await runner.read_resource(uri, call)
    wire: dict[str, Json] = {"contents": downgrade.resource_contents(contents, call.revision)}
    if others_meta:
        wire[meta.META] = others_meta
    return {**wire, **_cache_hints(call)}


def _cache_hints(call: Call) -> dict[str, Json]:
    """A parked output is its caller's alone, and so is what was read with the help of the user's answers."""
    resource = call.target
    if not isinstance(resource, Resource | ResourceTemplate) or brings_answers(call):
        return results.cache_hints(timedelta(0), is_shared=False)
    return results.cache_hints(
        resource.cache_ttl or timedelta(0), is_shared=resource.is_shared and not resource.access.scopes
    )
