"""The keywords of all supported JSON Schema dialects."""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Final
from urllib.parse import unquote

from gateway.json_types import DocumentPath, Json, JsonObject
from gateway.wire.headers import HeaderParameter

ONE_SCHEMA: Final = frozenset({
    "additionalItems", "additionalProperties", "contains", "contentSchema", "else", "if", "items", "not",
    "propertyNames", "then", "unevaluatedItems", "unevaluatedProperties",
})  # fmt: skip
SCHEMA_LISTS: Final = frozenset({"allOf", "anyOf", "items", "oneOf", "prefixItems"})
SCHEMA_MAPS: Final = frozenset({
    # `dependencies` (until draft-07) can contain lists of names, which `rewritten` does not change.
    "$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties", "properties",
})  # fmt: skip
_HOLDING: Final = ONE_SCHEMA | SCHEMA_LISTS | SCHEMA_MAPS
KEYWORDS: Final = _HOLDING | {
    "$anchor", "$comment", "$dynamicAnchor", "$dynamicRef", "$id", "$recursiveAnchor", "$recursiveRef", "$ref",
    "$schema", "$vocabulary", "const", "contentEncoding", "contentMediaType", "default", "dependentRequired",
    "deprecated", "description", "enum", "examples", "exclusiveMaximum", "exclusiveMinimum", "format", "maxContains",
    "maxItems", "maxLength", "maxProperties", "maximum", "minContains", "minItems", "minLength", "minProperties",
    "minimum", "multipleOf", "pattern", "readOnly", "required", "title", "type", "uniqueItems", "writeOnly",
}  # fmt: skip

_ARRAYS: Final = frozenset({"array"})
_NUMBERS: Final = frozenset({"integer", "number"})
_OBJECTS: Final = frozenset({"object"})
_STRINGS: Final = frozenset({"string"})
TYPES: Final = _ARRAYS | _NUMBERS | _OBJECTS | _STRINGS | {"boolean", "null"}
TYPES_BY_KEYWORD: Final[Mapping[str, frozenset[str]]] = {
    **dict.fromkeys(("exclusiveMaximum", "exclusiveMinimum", "maximum", "minimum", "multipleOf"), _NUMBERS),
    **dict.fromkeys(("maxLength", "minLength", "pattern"), _STRINGS),
    **dict.fromkeys(("contains", "items", "maxItems", "minItems", "prefixItems", "uniqueItems"), _ARRAYS),
    **dict.fromkeys(
        ("additionalProperties", "maxProperties", "minProperties", "patternProperties", "properties", "propertyNames"),
        _OBJECTS,
    ),
}
"""Types that each keyword applies to. Values of other types are valid (JSON Schema Validation §6)."""


def subschemas(schema: JsonObject) -> Iterator[tuple[DocumentPath, JsonObject]]:
    if _HOLDING.isdisjoint(schema):
        return
    for keyword, value in schema.items():
        if keyword in ONE_SCHEMA and isinstance(value, dict):
            yield (keyword,), value
        elif keyword in SCHEMA_LISTS and isinstance(value, list):
            yield from (((keyword, index), item) for index, item in enumerate(value) if isinstance(item, dict))
        elif keyword in SCHEMA_MAPS and isinstance(value, dict):
            yield from (((keyword, name), item) for name, item in value.items() if isinstance(item, dict))


def rewritten(schema: Json, change: Callable[[dict[str, Json]], None]) -> Json:
    """Return a copy of a schema with `change` applied to each object schema, inner schemas first."""
    if isinstance(schema, list):
        return [rewritten(item, change) for item in schema]
    if not isinstance(schema, dict):
        return schema
    copy: dict[str, Json] = dict(schema)
    # `const`, `default`, `enum` and `examples` contain data, not schemas.
    for keyword, value in schema.items():
        if keyword in SCHEMA_MAPS and isinstance(value, dict):
            copy[keyword] = {name: rewritten(member, change) for name, member in value.items()}
        elif keyword in ONE_SCHEMA or keyword in SCHEMA_LISTS:
            copy[keyword] = rewritten(value, change)
    change(copy)
    return copy


def properties_of(schema: JsonObject) -> JsonObject:
    found = schema.get("properties")
    return found if isinstance(found, dict) else {}


def with_items(schema: JsonObject) -> JsonObject:
    """Return a schema where all arrays have `items`, which some clients require."""
    if not _lacks_items(schema):
        return schema
    copy: JsonObject = rewritten(schema, _give_items)
    return copy


def _lacks_items(schema: JsonObject) -> bool:
    return _is_array_without_items(schema) or any(_lacks_items(member) for _, member in subschemas(schema))


def _is_array_without_items(schema: JsonObject) -> bool:
    kinds = schema.get("type")
    is_array = kinds == "array" or (isinstance(kinds, list) and "array" in kinds)
    return is_array and schema.keys().isdisjoint({"items", "prefixItems", "unevaluatedItems"})


def _give_items(schema: dict[str, Json]) -> None:
    if _is_array_without_items(schema):
        schema["items"] = {}


def referenced(schema: Json, reference: Json) -> Json:
    """Return the target of a `$ref` that is a JSON Pointer (RFC 6901), or None."""
    if not isinstance(reference, str) or not f"{reference}/".startswith("#/"):
        return None
    found = schema
    for step in unquote(reference).split("/")[1:]:
        # RFC 6901 §4: this order decodes `~01` as `~1`, not `/`.
        key = step.replace("~1", "/").replace("~0", "~")
        if isinstance(found, list):
            # Python does not parse more than 4300 digits.
            is_index = key.isdecimal() and len(key) < 10 and int(key) < len(found)
            found = found[int(key)] if is_index else None
        else:
            found = found.get(key) if isinstance(found, Mapping) else None
    return found


HEADER_KEYWORD: Final = "x-mcp-header"

_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # RFC 9110 §5.6.2
_HEADER_TYPES: Final = ("string", "integer", "boolean")


def header_parameters(
    schema: JsonObject,
) -> tuple[tuple[HeaderParameter, ...], tuple[tuple[DocumentPath, str], ...]]:
    """Find the inputs that clients also send as header fields (MCP 2026-07-28 server/tools, "x-mcp-header").

    Return the valid inputs, and the path and error of each invalid input.
    """
    found: list[HeaderParameter] = []
    refused: list[tuple[DocumentPath, str]] = []
    for path, annotated in _annotated(schema, ()):
        name = annotated[HEADER_KEYWORD]
        reason = _refusal(name, path, annotated, taken={parameter.name.lower() for parameter in found})
        if reason:
            refused.append(((*path, HEADER_KEYWORD), reason))
        else:
            # `_refusal` has checked that names and `properties` alternate.
            found.append(HeaderParameter(name=name, path=tuple(str(step) for step in path[1::2])))
    return tuple(found), tuple(refused)


def _annotated(schema: JsonObject, path: DocumentPath) -> Iterator[tuple[DocumentPath, JsonObject]]:
    if HEADER_KEYWORD in schema:
        yield path, schema
    for step, member in subschemas(schema):
        yield from _annotated(member, (*path, *step))


def _refusal(name: Json, path: DocumentPath, schema: JsonObject, *, taken: set[str]) -> str | None:
    if not isinstance(name, str) or not _TOKEN.fullmatch(name):
        return f"{HEADER_KEYWORD} must be a header field name (letters, digits and !#$%&'*+-.^_`|~)"
    if not path or any(step != "properties" for step in path[0::2]):
        return f"{HEADER_KEYWORD} is only allowed on an input that is reached through `properties`"
    if schema.get("type") not in _HEADER_TYPES:
        return f"{HEADER_KEYWORD} is only allowed on a string, integer or boolean"
    if name.lower() in taken:
        return f"{HEADER_KEYWORD} {name} is used twice (header field names are case-insensitive)"
    return None
