"""Implements resources/read (server/resources), and skills/get and resources/directory/read (SEP-2640)."""

from datetime import timedelta

from gateway.catalog.primitives import Resource, ResourceTemplate, Skill
from gateway.errors import ErrorCode, RpcError
from gateway.json_types import Json, JsonObject
from gateway.protocol import results
from gateway.protocol.call import run
from gateway.protocol.call.call import Call
from gateway.protocol.call.run import check_access
from gateway.wire import downgrade, jsonrpc, meta


async def read_resource(call: Call) -> JsonObject:
    uri = jsonrpc.string_param(call.params, "uri")
    contents, others_meta = await run.read_resource(uri, call)
    wire: dict[str, Json] = {"contents": downgrade.resource_contents(contents, call.revision)}
    if others_meta:
        wire[meta.META] = others_meta
    return {**wire, **_cache_hints(call)}


def _cache_hints(call: Call) -> dict[str, Json]:
    """Return cache hints. Forbid caching of stored outputs, and of contents that depend on the user's responses."""
    resource = call.target
    if not isinstance(resource, Resource | ResourceTemplate) or call.has_input_responses:
        return results.cache_hints(timedelta(0), is_shared=False)
    return results.cache_hints(
        resource.cache_ttl or timedelta(0), is_shared=resource.is_shared and not resource.access.scopes
    )


async def get_skill(call: Call) -> JsonObject:
    uri = jsonrpc.string_param(call.params, "uri")
    skill = call.catalog.skills.get(uri)
    if skill is None:
        raise RpcError(ErrorCode.INVALID_PARAMS, f"No skill is served at {uri}", {"uri": uri})
    resource = _checked(uri, call)
    hints = results.cache_hints(call.catalog.cache_ttl, is_shared=not resource.access.scopes)
    return {"skill": skill.entry, **hints}


async def read_directory(call: Call) -> JsonObject:
    uri = jsonrpc.string_param(call.params, "uri")
    found = _skill_with(uri, call)
    if found is None:
        raise RpcError(ErrorCode.INVALID_PARAMS, f"{uri} is not a directory resource", {"uri": uri})
    skill_uri, skill = found
    _checked(skill_uri, call)
    name, fingerprint = f"directory {uri}", call.catalog.file_fingerprints["resources"]
    cursor = call.params.get("cursor")
    start = 0 if cursor is None else call.server.pages.cursors.redeem(cursor, name, fingerprint)
    end = start + call.catalog.page_size
    children = skill.directories[uri]
    result: dict[str, Json] = {"resources": list(children[start:end])}
    if end < len(children):
        result["nextCursor"] = call.server.pages.cursors.issue(name, fingerprint, end)
    return result


def _skill_with(uri: str, call: Call) -> tuple[str, Skill] | None:
    for skill_uri, skill in call.catalog.skills.items():
        if uri in skill.directories:
            return skill_uri, skill
    return None


def _checked(uri: str, call: Call) -> Resource:
    resource = call.catalog.resources[uri]
    check_access(resource, call)
    return resource
