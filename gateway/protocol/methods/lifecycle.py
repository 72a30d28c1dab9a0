"""initialize, server/discover, ping and logging/setLevel (basic/lifecycle)."""

from typing import Final

from gateway.catalog.catalog import Catalog
from gateway.errors import ErrorCode, RpcError
from gateway.json_types import Json, JsonObject
from gateway.protocol import results
from gateway.protocol.call.call import Call
from gateway.protocol.tasks.wire import TASKS
from gateway.wire import downgrade, meta
from gateway.wire.revisions import MODERN

CAPABILITIES: Final[JsonObject] = {
    "tools": {"listChanged": True},
    "resources": {"listChanged": True, "subscribe": True},
    "prompts": {"listChanged": True},
    "completions": {},
    "logging": {},
    "extensions": {
        TASKS: {},
        "io.modelcontextprotocol/skills": {"directoryRead": True},  # SEP-2640; for 2026-07-28 and later
        "io.modelcontextprotocol/ui": {},  # SEP-1865
    },
}
"""The same whatever the file holds at the moment: what is empty now may not be after the next save."""


def initialize_result(catalog: Catalog, revision: str) -> dict[str, Json]:
    """`InitializeResult`."""
    result: dict[str, Json] = {
        "protocolVersion": revision,
        "capabilities": downgrade.capabilities(CAPABILITIES, revision),
        "serverInfo": downgrade.implementation(catalog.server_info, revision),
    }
    if catalog.instructions is not None:
        result["instructions"] = catalog.instructions
    return result


async def discover(call: Call) -> JsonObject:
    """Only versions that can be used without a handshake: a client takes its next request's version from here."""
    result: dict[str, Json] = {
        "supportedVersions": list(MODERN),
        "capabilities": CAPABILITIES,
        **results.cache_hints(call.catalog.cache_ttl),
    }
    if call.catalog.instructions is not None:
        result["instructions"] = call.catalog.instructions
    return result


async def ping(_call: Call) -> JsonObject:
    return {}


async def set_level(call: Call) -> JsonObject:
    level = call.params.get("level")
    if level not in meta.LOG_LEVELS:
        raise RpcError(ErrorCode.INVALID_PARAMS, f"`level` must be one of {', '.join(meta.LOG_LEVELS)}")
    if call.session is not None:
        call.session.log_level = level
    return {}
