"""Writes and checks request headers that repeat parts of the request body (since 2026-07-28). No I/O.

MCP 2026-07-28 basic/transports/streamable-http, "Request metadata" (SEP-2243). Intermediaries route by these headers,
so a mismatch with the body is refused.
"""

import base64
import binascii
import re
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec
import orjson

from gateway import exact_json
from gateway.errors import ErrorCode, RpcError
from gateway.json_types import Json, JsonObject
from gateway.wire.meta import HEADER_METHOD, HEADER_NAME, HEADER_PARAM_PREFIX

NAME_PARAM: Final = {
    "tools/call": "name",
    "prompts/get": "name",
    "resources/read": "uri",
    # ext-tasks, "Streamable HTTP: Routing Headers".
    **dict.fromkeys(("tasks/get", "tasks/update", "tasks/cancel"), "taskId"),
}
"""The methods that require `Mcp-Name`, each with the parameter that the header mirrors."""

_PREFIX: Final = "=?base64?"
_SUFFIX: Final = "?="
_NUMBERS: Final = frozenset({int, float})
_PLAIN: Final = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?")
"""Text that a header can contain unencoded (RFC 9110 §5.5)."""


class HeaderParameter(msgspec.Struct, frozen=True, kw_only=True):
    """A tool argument that 2026-07-28 clients copy to the header `Mcp-Param-{name}` (server/tools, "x-mcp-header")."""

    name: str
    path: tuple[str, ...]
    """The property names that lead from the root of the arguments to the value."""


def encode(text: str) -> str:
    """Encode a string as a header value, in base64 if necessary."""
    # "Value Encoding": text that looks like the base64 form is encoded too.
    if _PLAIN.fullmatch(text) and not text.startswith(_PREFIX):
        return text
    return f"{_PREFIX}{base64.b64encode(text.encode()).decode()}{_SUFFIX}"


def request_fields(method: str, params: JsonObject) -> dict[str, str]:
    """Return `Mcp-Method` and `Mcp-Name`, which repeat the method and the name or URI of a request."""
    fields = {"Mcp-Method": method}
    name = params.get(NAME_PARAM.get(method, ""))
    if isinstance(name, str):
        fields["Mcp-Name"] = encode(name)
    return fields


def parameter_fields(parameters: Iterable[HeaderParameter], arguments: JsonObject) -> dict[str, str]:
    """Return the `Mcp-Param-*` headers of a call."""
    values = ((parameter.name, _argument_at(arguments, parameter.path)) for parameter in parameters)
    return {
        f"Mcp-Param-{name}": encode(value if isinstance(value, str) else exact_json.dumps(value).decode())
        for name, value in values
        if value is not None
    }


def check_method(method: str, headers: Mapping[str, str]) -> None:
    """Check that `Mcp-Method` matches the method of the request.

    Raises:
        RpcError: -32020, the header is missing or does not match.
    """
    if headers.get(HEADER_METHOD) != method:
        raise _mismatch("Mcp-Method")


def check_name(method: str, params: JsonObject, headers: Mapping[str, str]) -> None:
    """Check that `Mcp-Name` matches the name, URI or task id in the parameters.

    Raises:
        RpcError: -32020, the header is missing, malformed or does not match.
    """
    parameter = NAME_PARAM.get(method)
    if parameter is None:
        return
    given, named = headers.get(HEADER_NAME), params.get(parameter)
    if given is None and not isinstance(named, str):
        return  # There is nothing to mirror. The method reports missing parameters.
    if given is None or (_decoded("Mcp-Name", given) if given.startswith(_PREFIX) else given) != named:
        raise _mismatch("Mcp-Name")


def check_parameters(parameters: Iterable[HeaderParameter], arguments: JsonObject, headers: Mapping[str, str]) -> None:
    """Check that the `Mcp-Param-*` headers match the arguments of a call.

    Raises:
        RpcError: -32020, a header is missing, unexpected or does not match.
    """
    for parameter in parameters:
        field = f"Mcp-Param-{parameter.name}"
        given = headers.get(HEADER_PARAM_PREFIX + parameter.name.lower())
        value = _argument_at(arguments, parameter.path)
        # "Server Behavior for Custom Headers": no header for null and missing values.
        if value is None and given is None:
            continue
        if value is None or given is None or not _is_equal(_decoded(field, given), value):
            raise _mismatch(field)


def _argument_at(arguments: Json, path: tuple[str, ...]) -> Json:
    for name in path:
        arguments = arguments.get(name) if isinstance(arguments, dict) else None
    return arguments


def _is_equal(text: str, value: Json) -> bool:
    if isinstance(value, str):
        return text == value
    # "Server Validation": numbers are compared as numbers. Booleans, which are `int` in Python, are compared as text.
    if isinstance(value, bool) or not isinstance(value, int | float):
        return text == exact_json.dumps(value).decode()
    try:
        number = exact_json.loads(text)
    except orjson.JSONDecodeError:
        return False
    return type(number) in _NUMBERS and bool(number == value)  # "42.0" equals 42.


def _decoded(field: str, value: str) -> str:
    """Decode a value of the form `=?base64?…?=`, and return any other value unchanged."""
    if not (value.startswith(_PREFIX) and value.endswith(_SUFFIX) and len(value) >= len(_PREFIX) + len(_SUFFIX)):
        return value
    encoded = value[len(_PREFIX) : -len(_SUFFIX)]
    try:
        decoded = base64.b64decode(encoded, validate=True)
        if base64.b64encode(decoded).decode() != encoded:  # b64decode ignores leftover bits.
            raise _mismatch(field)
        return decoded.decode()
    except (binascii.Error, UnicodeDecodeError) as error:
        raise _mismatch(field) from error


def _mismatch(field: str) -> RpcError:
    return RpcError(ErrorCode.HEADER_MISMATCH, f"The header field {field} does not match the request body")
