"""The legacy door: `initialize` and what it agrees on. Pure.

MCP 2025-11-25 basic/lifecycle, "Initialization"; the same page of older revisions.
"""

from gateway.access.identity import Identity
from gateway.errors import ErrorCode, RpcError
from gateway.json_types import Json, JsonObject
from gateway.protocol.session import Session
from gateway.protocol.versions import negotiate


def open_session(params: JsonObject, *, identity: Identity) -> Session:
    """Begin a session with the revision that both sides speak.

    Raises:
        RpcError: -32602, the parameters are not those of `initialize`.
    """
    requested = params.get("protocolVersion")
    if not isinstance(requested, str):
        raise RpcError(ErrorCode.INVALID_PARAMS, "`protocolVersion` must be a string")
    return Session(
        revision=negotiate(requested),
        client_info=_object(params, "clientInfo"),
        capabilities=_object(params, "capabilities"),
        identity=identity,
    )


def _object(params: JsonObject, name: str) -> dict[str, Json]:
    value = params.get(name, {})
    if not isinstance(value, dict):
        raise RpcError(ErrorCode.INVALID_PARAMS, f"`{name}` must be an object")
    return value
