"""What a server says about itself: initialize, server/discover, ping, logging/setLevel."""

from typing import Final

from gateway.catalog.primitives import Catalog
from gateway.errors import ErrorCode, RpcError
from gateway.json_types import Json, JsonObject
from gateway.protocol import meta, results, revisions
from gateway.protocol.request import RequestContext, Runtime
from gateway.protocol.versions import MODERN

CAPABILITIES: Final[JsonObject] = {
    "tools": {"listChanged": True},
    "resources": {"listChanged": True, "subscribe": True},
    "prompts": {"listChanged": True},
    "completions": {},
    "logging": {},
}
"""The same whatever the file holds at the moment: what is empty now may not be after the next save."""


def initialize_result(catalog: Catalog, revision: str) -> dict[str, Json]:
    """`InitializeResult`."""
    result: dict[str, Json] = {
        "protocolVersion": revision,
        "capabilities": revisions.capabilities(CAPABILITIES, revision),
        "serverInfo": revisions.implementation(catalog.server_info, revision),
    }
    if catalog.instructions is not None:
        result["instructions"] = catalog.instructions
    return result


async def discover(request: RequestContext, _runtime: Runtime) -> JsonObject:
    """Only versions that can be used without a handshake: a client takes its next request's version from here."""
    result: dict[str, Json] = {
        "supportedVersions": list(MODERN),
        "capabilities": CAPABILITIES,
        **results.cache_hints(request.catalog.cache_ttl),
    }
    if request.catalog.instructions is not None:
        result["instructions"] = request.catalog.instructions
    return result


async def ping(_request: RequestContext, _runtime: Runtime) -> JsonObject:
    return {}


async def set_level(request: RequestContext, _runtime: Runtime) -> JsonObject:
    level = request.params.get("level")
    if level not in meta.LOG_LEVELS:
        raise RpcError(ErrorCode.INVALID_PARAMS, f"`level` must be one of {', '.join(meta.LOG_LEVELS)}")
    if request.session is not None:
        request.session.log_level = level
    return {}
