"""Decides whether a message belongs to the modern era, and checks its envelope. Pure: no I/O, no clock.

Each request of this era carries its version, its client's capabilities and its client's name in `params._meta`; over
HTTP the version stands in a header field too, and must be the same.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from gateway.errors import ErrorCode, RpcError
from gateway.json_types import JsonObject, present
from gateway.wire import meta
from gateway.wire.jsonrpc import Message, Notification, Request
from gateway.wire.revisions import MODERN, is_modern_date

_ENVELOPE_KEYS: Final = (meta.META_PROTOCOL_VERSION, meta.META_CLIENT_CAPABILITIES, meta.META_CLIENT_INFO)


class Envelope(msgspec.Struct, frozen=True):
    """The metadata that a modern request carries in `_meta`."""

    revision: str
    client_info: JsonObject
    capabilities: JsonObject
    log_level: str | None


def is_modern(message: Message, *, version_header: str | None) -> bool:
    """Tell whether the modern era's rules apply. Other `Mcp-*` header fields do not count: legacy clients send them."""
    if version_header is not None and is_modern_date(version_header):
        return True
    if not isinstance(message, (Request, Notification)):
        return False
    fields = message.params.get(meta.META)
    # One key will do: a request that lacks the others is told which, and not that it has no session.
    return isinstance(fields, dict) and not fields.keys().isdisjoint(_ENVELOPE_KEYS)


def open_envelope(request: Request, *, headers: Mapping[str, str] | None) -> Envelope | RpcError:
    """Check a request's version and metadata; an error is answered with HTTP status 400.

    The ladder:

    1. over HTTP, `MCP-Protocol-Version` is there, and is the version in `_meta` if that has one: -32020
    2. the version is one of ours: -32022
    3. `_meta` has the version, the capabilities and well-formed optional fields: -32602

    Args:
        request: any request for which `is_modern` holds.
        headers: header fields of the HTTP request, names in lower case; None where there are none.
    """
    fields = request.params.get(meta.META)
    fields = present(fields) if isinstance(fields, dict) else {}
    version = fields.get(meta.META_PROTOCOL_VERSION)
    stated = version
    if headers is not None:
        stated = headers.get(meta.HEADER_PROTOCOL_VERSION)
        # A body without a version is malformed (-32602, below) and no mismatch: 2026-07-28 basic/index, "_meta".
        if stated is None or (isinstance(version, str) and version != stated):
            return _header_mismatch()
    if isinstance(stated, str) and stated not in MODERN:
        return RpcError(
            ErrorCode.UNSUPPORTED_PROTOCOL_VERSION,
            "Unsupported protocol version",
            {"supported": list(MODERN), "requested": stated},
        )
    capabilities, client_info = fields.get(meta.META_CLIENT_CAPABILITIES), fields.get(meta.META_CLIENT_INFO, {})
    level = fields.get(meta.META_LOG_LEVEL)
    if not isinstance(version, str):
        problem = f'`_meta` needs "{meta.META_PROTOCOL_VERSION}"; supported: {", ".join(MODERN)}'
    elif not isinstance(capabilities, dict):
        problem = f'`_meta` needs "{meta.META_CLIENT_CAPABILITIES}", an object'
    elif not isinstance(client_info, dict):
        problem = f'"{meta.META_CLIENT_INFO}" must be an object'
    elif level is not None and level not in meta.LOG_LEVELS:
        problem = f'"{meta.META_LOG_LEVEL}" must be one of {", ".join(meta.LOG_LEVELS)}'
    else:
        return Envelope(version, client_info, declared(capabilities), level)
    # With the revisions: an `initialize` with a modern header field comes here, and its client must know what to use.
    return RpcError(ErrorCode.INVALID_PARAMS, problem, {"supported": list(MODERN)})


def declared(capabilities: JsonObject) -> JsonObject:
    """Return a client's capabilities without those, and without features of them, that are null."""
    return {name: present(value) if isinstance(value, dict) else value for name, value in present(capabilities).items()}


def _header_mismatch() -> RpcError:
    return RpcError(
        ErrorCode.HEADER_MISMATCH, "The header field MCP-Protocol-Version is missing or does not match the request body"
    )
