"""Converts results and errors to JSON-RPC messages for the client's protocol revision."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Final

from gateway.catalog.catalog import Catalog
from gateway.errors import (
    ErrorCode,
    InsufficientScopeError,
    ResourceNotFoundError,
    RpcError,
    TooManyRequestsError,
)
from gateway.executors.invocation import ToolResult
from gateway.json_types import ABSENT, Json, JsonObject
from gateway.protocol.exchange import Reply
from gateway.wire import downgrade, jsonrpc, meta
from gateway.wire.jsonrpc import InvalidMessageError, RequestId
from gateway.wire.revisions import MODERN, requires_error_id

STATUS_BY_CODE: Final[Mapping[int, int]] = {
    ErrorCode.PARSE_ERROR: 400,
    ErrorCode.INVALID_REQUEST: 400,
    ErrorCode.METHOD_NOT_FOUND: 404,
    ErrorCode.HEADER_MISMATCH: 400,
    ErrorCode.MISSING_CLIENT_CAPABILITY: 400,
    ErrorCode.UNSUPPORTED_PROTOCOL_VERSION: 400,
    ErrorCode.TOO_MANY_REQUESTS: 429,
}
"""HTTP statuses by error code (MCP 2026-07-28 basic/transports/streamable-http). The default status is 200.

Older revisions always use 200, because the official client treats any other status as the end of the connection.
"""

_IN_MODERN: Final[Mapping[int, int]] = {
    ErrorCode.RESOURCE_NOT_FOUND: ErrorCode.INVALID_PARAMS,
    ErrorCode.URL_ELICITATION_REQUIRED: ErrorCode.INTERNAL_ERROR,
}
"""Replacements for error codes that 2026-07-28 has removed, but that upstream servers and plugins can still use."""

_OF_MODERN: Final = frozenset(
    {ErrorCode.HEADER_MISMATCH, ErrorCode.MISSING_CLIENT_CAPABILITY, ErrorCode.UNSUPPORTED_PROTOCOL_VERSION}
)

_STATUS_WITHOUT_REQUEST: Final = 400


def complete(result: JsonObject, *, catalog: Catalog, revision: str) -> dict[str, Json]:
    """Add the members that `revision` requires in every result, and remove members that `revision` does not define."""
    if revision in MODERN:
        server_info = downgrade.implementation(catalog.server_info, revision)
        fields = {**result.get(meta.META, {}), meta.META_SERVER_INFO: server_info}
        # A result may have a different `resultType`, such as `input_required` or `task`.
        result = {"resultType": "complete", **result, meta.META: fields}
    return downgrade.strip("Result", result, revision)


def cache_hints(ttl: timedelta, *, is_shared: bool = True) -> dict[str, Json]:
    return {"ttlMs": int(ttl.total_seconds() * 1000), "cacheScope": "public" if is_shared else "private"}


def tool_result(result: ToolResult, revision: str) -> dict[str, Json]:
    wire: dict[str, Json] = {"content": downgrade.content(result.content, revision)}
    if result.is_error:
        wire["isError"] = True
    if result.structured is not ABSENT:
        wire["structuredContent"] = downgrade.structured(result.structured, revision)
    if result.meta:
        wire[meta.META] = dict(result.meta)
    return wire


def error_reply(
    error: RpcError, *, request_id: RequestId | None, revision: str | None, status: int | None = None
) -> Reply:
    """Convert an error to a reply. `status` overrides the HTTP status. A revision of None means the modern era."""
    if request_id is None and isinstance(error, InvalidMessageError):
        request_id = error.request_id
    missing_scopes = error.scopes if isinstance(error, InsufficientScopeError) else frozenset()
    if status is None and missing_scopes:
        status = 403
    if status is None:
        is_modern = revision is None or revision in MODERN
        status = STATUS_BY_CODE.get(error.code, 200) if is_modern else 200
        if request_id is None or isinstance(error, InvalidMessageError):
            status = _STATUS_WITHOUT_REQUEST
    body = jsonrpc.encode(_error_message(error, request_id, revision))
    retry_after = error.retry_after if isinstance(error, TooManyRequestsError) else None
    return Reply(body=body, status=status, missing_scopes=missing_scopes, retry_after=retry_after)


def _error_message(error: RpcError, request_id: RequestId | None, revision: str | None) -> JsonObject:
    is_legacy = revision is not None and revision not in MODERN
    code, data = _legacy_code(error) if is_legacy else (_IN_MODERN.get(error.code, error.code), error.data)
    body: dict[str, Json] = {"code": code, "message": error.message}
    if data is not None:
        body["data"] = data
    message: dict[str, Json] = {"jsonrpc": jsonrpc.VERSION, "error": body}
    if request_id is not None or (revision is not None and requires_error_id(revision)):
        message["id"] = request_id
    return message


def _legacy_code(error: RpcError) -> tuple[int, Json]:
    if isinstance(error, ResourceNotFoundError):
        return ErrorCode.RESOURCE_NOT_FOUND, error.data
    if error.code in _OF_MODERN:
        return ErrorCode.INTERNAL_ERROR, None
    return error.code, error.data
