"""JSON-RPC 2.0: decodes and encodes messages, independent of MCP methods.

Each message is decoded and encoded once. Params and results stay plain dictionaries.
"""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

import msgspec
import orjson

from gateway import exact_json
from gateway.errors import ErrorCode, RpcError
from gateway.json_types import Json, JsonObject

RequestId = str | int

VERSION: Final = "2.0"
MAX_BATCH: Final = 100
"""The maximum number of messages in a batch."""

_NUMERIC_IDS: Final = range(-(2**63), 2**64)
"""The integer ids that are accepted, because most peers cannot represent longer integers."""


class Request(msgspec.Struct, frozen=True):
    id: RequestId
    method: str
    params: JsonObject


class Notification(msgspec.Struct, frozen=True):
    method: str
    params: JsonObject


class Response(msgspec.Struct, frozen=True):
    id: RequestId | None
    result: Json = None
    error: Json = None


class InvalidMessageError(RpcError):
    """A message is invalid. `request_id` is the id for the error response, or None if the id is not readable."""

    def __init__(self, code: ErrorCode, message: str, request_id: RequestId | None = None) -> None:
        super().__init__(code, message)
        self.request_id = request_id


Single = Request | Notification | Response


class Batch(NamedTuple):
    """A batch of messages (only 2025-03-26). An invalid message is represented by its error."""

    # Not a `Struct`, because `isinstance` is slow for the wrong type of a `Struct`.
    entries: tuple[Single | InvalidMessageError, ...]


Message = Single | Batch


def size_of(message: Message) -> int:
    """Return the number of messages in a batch, or 1 for a single message, for limits on requests in flight."""
    return len(message.entries) if isinstance(message, Batch) else 1


def decode(body: bytes | bytearray | memoryview, *, max_depth: int, limit: str = "") -> Message:
    """Decode a message or batch. `limit` is the configuration key that sets `max_depth`, for the error message.

    Raises:
        InvalidMessageError: -32700 if `body` is not JSON, -32600 or -32602 if `body` is not a valid message.
    """
    raw = bytes(body)
    try:
        value = exact_json.loads(raw)
    except orjson.JSONDecodeError as error:
        raise InvalidMessageError(ErrorCode.PARSE_ERROR, f"Parse error: {error.msg}", _id_in_bad_text(raw)) from error
    # The number of brackets limits the depth, so most messages need no further check.
    if raw.count(b"{") + raw.count(b"[") > max_depth and is_deeper(value, max_depth):
        text = f"The message is nested more than {max_depth} levels deep"
        raise InvalidMessageError(
            ErrorCode.INVALID_REQUEST, f"{text} ({limit})" if limit else text, _readable_id(value)
        )
    return _batch(value) if isinstance(value, list) else _single(value)


def encode(message: Mapping[str, Json]) -> bytes:
    """Encode a message on one line. Mappings and tuples become objects and arrays."""
    return exact_json.dumps(message, default=plain)


def encode_result(request_id: RequestId, result: bytes) -> bytes:
    """Wrap an encoded result in a response without decoding it."""
    # Use `join`, because formatting allocates more memory, and glibc would map and unmap the pages of each long list.
    return b"".join((b'{"jsonrpc":"2.0","id":', orjson.dumps(request_id), b',"result":', result, b"}"))


def plain(value: object) -> Json:
    """Convert a read-only mapping or sequence for orjson, which calls this function as `default`.

    Raises:
        TypeError: The value is not JSON.
    """
    if isinstance(value, Mapping):
        return dict(value)
    # Bytes are iterable too, and would become a list of numbers.
    if isinstance(value, Iterable) and not isinstance(value, bytes):
        return list(value)
    raise TypeError(f"{type(value).__name__} cannot be encoded as JSON")


def _batch(entries: list[Json]) -> Batch:
    if not entries:
        raise InvalidMessageError(ErrorCode.INVALID_REQUEST, "The batch is empty")
    if len(entries) > MAX_BATCH:
        raise InvalidMessageError(ErrorCode.INVALID_REQUEST, f"The batch contains more than {MAX_BATCH} messages")
    return Batch(tuple(_entry(value) for value in entries))


def _entry(value: Json) -> Single | InvalidMessageError:
    try:
        return _single(value)
    except InvalidMessageError as error:
        return error


def _single(value: Json) -> Single:
    if not isinstance(value, dict):
        raise InvalidMessageError(ErrorCode.INVALID_REQUEST, "A message must be a JSON object")
    request_id = _readable_id(value)
    if value.get("jsonrpc") != VERSION:
        raise InvalidMessageError(ErrorCode.INVALID_REQUEST, '`jsonrpc` must be "2.0"', request_id)
    # JSON-RPC 2.0 §5: errors have the id null if the id of the request was unreadable.
    if request_id is None and "id" in value and not ("error" in value and value["id"] is None):
        raise InvalidMessageError(ErrorCode.INVALID_REQUEST, "`id` must be a string or an integer of up to 64 bits")
    if "method" not in value:
        if ("result" in value) == ("error" in value):
            raise InvalidMessageError(
                ErrorCode.INVALID_REQUEST, "The message is neither a request nor a response", request_id
            )
        return Response(request_id, value.get("result"), value.get("error"))
    method, params = value["method"], value.get("params")
    if not isinstance(method, str):
        raise InvalidMessageError(ErrorCode.INVALID_REQUEST, "`method` must be a string", request_id)
    if params is None or params == []:  # PHP encodes an empty object as a list
        params = {}
    elif not isinstance(params, dict):
        raise InvalidMessageError(ErrorCode.INVALID_PARAMS, "`params` must be an object", request_id)
    return Notification(method, params) if request_id is None else Request(request_id, method, params)


def _readable_id(value: Json) -> RequestId | None:
    request_id = value.get("id") if isinstance(value, dict) else None
    if type(request_id) is int:  # `isinstance(True, int)` is true.
        return request_id if request_id in _NUMERIC_IDS else None
    return request_id if isinstance(request_id, str) else None


def _id_in_bad_text(raw: bytes) -> RequestId | None:
    """Return the id of a request that is only invalid because of malformed text, such as half an emoji.

    Malformed text is invalid UTF-8 or a lone surrogate. An error without the id would leave the client waiting.
    """
    try:
        value = json.loads(raw.decode(errors="replace"))
    except (ValueError, RecursionError):
        return None
    request_id = _readable_id(value) if isinstance(value, dict) and "method" in value else None
    is_whole = not isinstance(request_id, str) or not re.search("[\ud800-\udfff\ufffd]", request_id)
    return request_id if is_whole else None


def is_deeper(value: Json, limit: int) -> bool:
    """Return whether lists and objects in `value` are nested more than `limit` deep. `value` itself is level one."""
    # Use a loop, because orjson reads 1,024 levels, which is more than Python's recursion limit.
    level: list[Json] = [value]
    for _ in range(limit):
        level = [
            child
            for node in level
            if isinstance(node, dict | list)
            for child in (node.values() if isinstance(node, dict) else node)
            if isinstance(child, dict | list)
        ]
        if not level:
            return False
    return True


def string_param(params: JsonObject, name: str) -> str:
    value = params.get(name)
    if not isinstance(value, str):
        raise _invalid_param(name, "a string")
    return value


def object_param(params: JsonObject, name: str) -> JsonObject:
    """Return an object parameter, or an empty object if the parameter is missing, null or an empty list."""
    value = present(params).get(name, {})
    if value == []:
        return {}
    if not isinstance(value, dict):
        raise _invalid_param(name, "an object")
    return value


def strings_param(params: JsonObject, name: str) -> dict[str, str]:
    """Return an object parameter whose values are strings. Members that are null are ignored."""
    value = dict(present(object_param(params, name)))
    for key, entry in value.items():
        if not isinstance(entry, str):
            raise _invalid_param(f"{name}.{key}", "a string")
    return value


def present(value: JsonObject) -> JsonObject:
    """Return an object without its null members. Some clients send null instead of omitting a member."""
    return {name: member for name, member in value.items() if member is not None} if None in value.values() else value


def _invalid_param(name: str, expected: str) -> RpcError:
    return RpcError(ErrorCode.INVALID_PARAMS, f"`{name}` must be {expected}")
