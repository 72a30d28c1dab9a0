"""skills/get and resources/directory/read (SEP-2640, the extension io.modelcontextprotocol/skills)."""

from gateway.catalog.primitives import Resource, Skill
from gateway.errors import ErrorCode, RpcError
from gateway.json_types import Json, JsonObject
from gateway.protocol import results
from gateway.protocol.call.call import Call
from gateway.protocol.call.runner import check_access
from gateway.protocol.methods import params


async def get_skill(call: Call) -> JsonObject:
    uri = params.string(call.params, "uri")
    skill = call.catalog.skills.get(uri)
    if skill is None:
        raise RpcError(ErrorCode.INVALID_PARAMS, f"No skill is served at {uri}", {"uri": uri})
    resource = _checked(uri, call)
    hints = results.cache_hints(call.catalog.cache_ttl, is_shared=not resource.access.scopes)
    return {"skill": skill.entry, **hints}


async def read_directory(call: Call) -> JsonObject:
    """Answer with what lies in a directory of a skill, as it was when the skill was read."""
    uri = params.string(call.params, "uri")
    found = _skill_with(uri, call)
    if found is None:
        raise RpcError(ErrorCode.INVALID_PARAMS, f"{uri} is not a directory resource", {"uri": uri})
    skill_uri, skill = found
    _checked(skill_uri, call)
    name, fingerprint = f"directory {uri}", call.catalog.file_fingerprints["resources"]
    cursor = call.params.get("cursor")
    start = 0 if cursor is None else call.server.cursors.redeem(cursor, name, fingerprint)
    end = start + call.catalog.page_size
    children = skill.directories[uri]
    result: dict[str, Json] = {"resources": list(children[start:end])}
    if end < len(children):
        result["nextCursor"] = call.server.cursors.issue(name, fingerprint, end)
    return result


def _skill_with(uri: str, call: Call) -> tuple[str, Skill] | None:
    """The skill that has a directory of this URI, and the URI of its SKILL.md."""
    for skill_uri, skill in call.catalog.skills.items():
        if uri in skill.directories:
            return skill_uri, skill
    return None


def _checked(uri: str, call: Call) -> Resource:
    """The SKILL.md of a skill.

    Raises:
        InsufficientScopeError: the caller may see the skill, and lacks a scope that it needs.
    """
    resource = call.catalog.resources[uri]
    check_access(resource, call)
    return resource
