"""Finds inputs that clients send as `Mcp-Param-*` header fields (MCP 2026-07-28 server/tools, "x-mcp-header")."""

import re
from collections.abc import Iterator
from typing import Final

from gateway.json_types import DocumentPath, Json, JsonObject
from gateway.language.schemas.errors import SchemaError
from gateway.language.schemas.keywords import subschemas
from gateway.wire.headers import HeaderParameter

KEYWORD: Final = "x-mcp-header"

_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # RFC 9110 §5.6.2
_TYPES: Final = ("string", "integer", "boolean")


def header_parameters(schema: JsonObject) -> tuple[tuple[HeaderParameter, ...], tuple[SchemaError, ...]]:
    """Return the valid parameters of a schema, and the errors of invalid ones."""
    found: list[HeaderParameter] = []
    schema_problems: list[SchemaError] = []
    for path, annotated in _annotated(schema, ()):
        name = annotated[KEYWORD]
        reason = _refusal(name, path, annotated, taken={parameter.name.lower() for parameter in found})
        if reason:
            schema_problems.append(SchemaError(path=(*path, KEYWORD), message=reason))
        else:
            # `_refusal` has checked that names and `properties` alternate.
            found.append(HeaderParameter(name=name, path=tuple(str(step) for step in path[1::2])))
    return tuple(found), tuple(schema_problems)


def _annotated(schema: JsonObject, path: DocumentPath) -> Iterator[tuple[DocumentPath, JsonObject]]:
    if KEYWORD in schema:
        yield path, schema
    for step, member in subschemas(schema):
        yield from _annotated(member, (*path, *step))


def _refusal(name: Json, path: DocumentPath, schema: JsonObject, *, taken: set[str]) -> str | None:
    if not isinstance(name, str) or not _TOKEN.fullmatch(name):
        return f"{KEYWORD} must be a header field name (letters, digits and !#$%&'*+-.^_`|~)"
    if not path or any(step != "properties" for step in path[0::2]):
        return f"{KEYWORD} is only allowed on an input that is reached through `properties`"
    if schema.get("type") not in _TYPES:
        return f"{KEYWORD} is only allowed on a string, integer or boolean"
    if name.lower() in taken:
        return f"{KEYWORD} {name} is used twice (header field names are case-insensitive)"
    return None
