"""Implements initialize, server/discover, ping and logging/setLevel (basic/lifecycle)."""

from typing import Final

from gateway.access.identity import Identity
from gateway.catalog.catalog import Catalog
from gateway.errors import ErrorCode, RpcError
from gateway.json_types import Json, JsonObject
from gateway.protocol import results
from gateway.protocol.call.call import Call
from gateway.protocol.envelope import declared
from gateway.protocol.session import Session
from gateway.protocol.tasks.wire import TASKS
from gateway.wire import downgrade, jsonrpc, meta
from gateway.wire.revisions import MODERN, negotiate

CAPABILITIES: Final[JsonObject] = {
    "tools": {"listChanged": True},
    "resources": {"listChanged": True, "subscribe": True},
    "prompts": {"listChanged": True},
    "completions": {},
    "logging": {},
    "extensions": {
        TASKS: {},
        "io.modelcontextprotocol/skills": {"directoryRead": True},  # SEP-2640; since 2026-07-28
        "io.modelcontextprotocol/ui": {},  # SEP-1865
    },
}
"""The server's capabilities, which do not depend on the catalog because a reload may add primitives."""

_MAX_KEPT: Final = 16 * 1024
"""The maximum number of bytes of `clientInfo` and of `capabilities`, because each session keeps both in memory."""


def open_session(given: JsonObject, *, identity: Identity, view: str | None = None) -> Session:
    """Create a session from the parameters of `initialize`. Raise RpcError if a parameter is invalid or too large."""
    requested, client_info = jsonrpc.string_param(given, "protocolVersion"), jsonrpc.object_param(given, "clientInfo")
    # Do not keep icons, which are unused and may be large `data:` URIs.
    without_icons = {name: value for name, value in client_info.items() if name != "icons"}
    return Session(
        revision=negotiate(requested),
        client_info=_kept(without_icons, "clientInfo"),
        capabilities=_kept(declared(jsonrpc.object_param(given, "capabilities")), "capabilities"),
        identity=identity,
        view=view,
    )


def initialize_result(catalog: Catalog, revision: str) -> dict[str, Json]:
    result: dict[str, Json] = {
        "protocolVersion": revision,
        "capabilities": downgrade.capabilities(CAPABILITIES, revision),
        "serverInfo": downgrade.implementation(catalog.server_info, revision),
    }
    if catalog.all_instructions is not None:
        result["instructions"] = catalog.all_instructions
    return result


async def discover(call: Call) -> JsonObject:
    """Return a `DiscoverResult`, which lists only modern versions because only modern clients send this request."""
    catalog = call.catalog
    # Shared caches must not store the instructions of a view with scopes (server/utilities/caching).
    is_shared = catalog.view is None or not catalog.views[catalog.view].access.scopes
    # The same applies to upstream instructions that depend on the caller's scopes.
    is_shared = is_shared and not (catalog.upstream_instructions and catalog.scopes)
    result: dict[str, Json] = {
        "supportedVersions": list(MODERN),
        "capabilities": downgrade.capabilities(CAPABILITIES, call.revision),
        **results.cache_hints(catalog.cache_ttl, is_shared=is_shared),
    }
    if catalog.all_instructions is not None:
        result["instructions"] = catalog.all_instructions
    return result


async def ping(_call: Call) -> JsonObject:
    return {}


async def set_level(call: Call) -> JsonObject:
    level = call.params.get("level")
    if level not in meta.LOG_LEVELS:
        raise RpcError(ErrorCode.INVALID_PARAMS, f"`level` must be one of {', '.join(meta.LOG_LEVELS)}")
    if call.session is not None:
        call.session.set_log_level(level)
    return {}


def _kept(value: JsonObject, name: str) -> JsonObject:
    if len(jsonrpc.encode(value)) > _MAX_KEPT:
        raise RpcError(ErrorCode.INVALID_PARAMS, f"`{name}` is larger than {_MAX_KEPT} bytes")
    return value
