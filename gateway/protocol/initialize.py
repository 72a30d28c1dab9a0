"""Answers `initialize`: opens a legacy session with the revision that both sides speak. Pure.

MCP 2025-11-25 basic/lifecycle, "Initialization"; the same page of older revisions.
"""

from typing import Final

from gateway.access.identity.identity import Identity
from gateway.errors import ErrorCode, RpcError
from gateway.json_types import Json, JsonObject
from gateway.protocol.session import Session
from gateway.wire import jsonrpc
from gateway.wire.revisions import negotiate

_MAX_LENGTH: Final = 16 * 1024
"""Bytes of what a client says of itself: it is kept as long as the session, of which there are many."""


def open_session(params: JsonObject, *, identity: Identity, view: str | None = None) -> Session:
    """Begin a session, at a view or the whole, with the revision that both sides speak.

    Raises:
        RpcError: -32602, the parameters are not those of `initialize`, or too large to be kept for a session.
    """
    requested = params.get("protocolVersion")
    if not isinstance(requested, str):
        raise RpcError(ErrorCode.INVALID_PARAMS, "`protocolVersion` must be a string")
    return Session(
        revision=negotiate(requested),
        client_info=_kept(_without_pictures(_object(params, "clientInfo")), "clientInfo"),
        capabilities=_kept(_object(params, "capabilities"), "capabilities"),
        identity=identity,
        view=view,
    )


def _object(params: JsonObject, name: str) -> dict[str, Json]:
    value = params.get(name, {})
    if not isinstance(value, dict):
        raise RpcError(ErrorCode.INVALID_PARAMS, f"`{name}` must be an object")
    return value


def _without_pictures(client_info: dict[str, Json]) -> dict[str, Json]:
    """Icons may be `data:` URIs of any size, and nothing here reads them."""
    return {name: value for name, value in client_info.items() if name != "icons"}


def _kept(value: dict[str, Json], name: str) -> dict[str, Json]:
    if len(jsonrpc.encode(value)) > _MAX_LENGTH:
        raise RpcError(ErrorCode.INVALID_PARAMS, f"`{name}` is larger than {_MAX_LENGTH} bytes")
    return value
