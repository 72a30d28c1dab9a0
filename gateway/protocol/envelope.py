"""Recognizes and checks modern requests, which contain a version and capabilities in `params._meta`."""

from collections.abc import Mapping
from typing import Final

import msgspec

from gateway.errors import ErrorCode, RpcError
from gateway.json_types import JsonObject
from gateway.wire import meta
from gateway.wire.jsonrpc import Message, Notification, Request, present
from gateway.wire.revisions import MODERN, is_modern_date

_ENVELOPE_KEYS: Final = (meta.META_PROTOCOL_VERSION, meta.META_CLIENT_CAPABILITIES, meta.META_CLIENT_INFO)


class Envelope(msgspec.Struct, frozen=True):
    revision: str
    client_info: JsonObject
    capabilities: JsonObject
    log_level: str | None


def is_modern(message: Message, *, version_header: str | None) -> bool:
    """Return whether a message is modern, based only on `MCP-Protocol-Version` and `_meta`."""
    if version_header is not None and is_modern_date(version_header):
        return True
    if not isinstance(message, (Request, Notification)):
        return False
    fields = message.params.get(meta.META)
    # One key is enough, because an error about missing keys is clearer than an error about a missing session.
    return isinstance(fields, dict) and not fields.keys().isdisjoint(_ENVELOPE_KEYS)


def open_envelope(request: Request, *, headers: Mapping[str, str] | None) -> Envelope | RpcError:
    """Return the checked metadata of a modern request, or the error (HTTP status 400) of the first failed check.

    1. over HTTP, `MCP-Protocol-Version` must be present and match the version in `_meta`, if there is one: -32020
    2. the version must be supported: -32022
    3. `_meta` must contain the version, the capabilities and only valid optional fields: -32602

    The names in `headers` must be lower-case. Without HTTP, `headers` is None.
    """
    fields = request.params.get(meta.META)
    fields = present(fields) if isinstance(fields, dict) else {}
    version = fields.get(meta.META_PROTOCOL_VERSION)
    stated = version
    if headers is not None:
        stated = headers.get(meta.HEADER_PROTOCOL_VERSION)
        # A body without a version is invalid (-32602) rather than a mismatch: MCP 2026-07-28 basic/index, "_meta".
        if stated is None or (isinstance(version, str) and version != stated):
            return RpcError(
                ErrorCode.HEADER_MISMATCH,
                "The header field MCP-Protocol-Version is missing or does not match the request body",
            )
    if isinstance(stated, str) and stated not in MODERN:
        return RpcError(
            ErrorCode.UNSUPPORTED_PROTOCOL_VERSION,
            "Unsupported protocol version",
            {"supported": list(MODERN), "requested": stated},
        )
    capabilities, client_info = fields.get(meta.META_CLIENT_CAPABILITIES), fields.get(meta.META_CLIENT_INFO, {})
    level = fields.get(meta.META_LOG_LEVEL)
    if not isinstance(version, str):
        problem = f'`_meta` must contain "{meta.META_PROTOCOL_VERSION}", one of {", ".join(MODERN)}'
    elif not isinstance(capabilities, dict):
        problem = f'`_meta` must contain "{meta.META_CLIENT_CAPABILITIES}", an object'
    elif not isinstance(client_info, dict):
        problem = f'"{meta.META_CLIENT_INFO}" must be an object'
    elif level is not None and level not in meta.LOG_LEVELS:
        problem = f'"{meta.META_LOG_LEVEL}" must be one of {", ".join(meta.LOG_LEVELS)}'
    else:
        return Envelope(version, client_info, declared(capabilities), level)
    # List the supported revisions for clients that send `initialize` with a modern header field.
    return RpcError(ErrorCode.INVALID_PARAMS, problem, {"supported": list(MODERN)})


def declared(capabilities: JsonObject) -> JsonObject:
    """Return the capabilities without members that are null."""
    return {name: present(value) if isinstance(value, dict) else value for name, value in present(capabilities).items()}
