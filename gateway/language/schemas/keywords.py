"""The keywords of all supported JSON Schema dialects."""

from collections.abc import Callable, Iterator, Mapping
from typing import Final
from urllib.parse import unquote

from gateway.json_types import DocumentPath, Json, JsonObject

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
"""Types that a keyword applies to. Other values are valid (JSON Schema Validation §6)."""


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


def with_items(schema: Json) -> Json:
    """Return a copy of a schema where all arrays have `items`, which some clients require."""
    return rewritten(schema, _give_items)


def _give_items(schema: dict[str, Json]) -> None:
    kinds = schema.get("type")
    is_array = kinds == "array" or (isinstance(kinds, list) and "array" in kinds)
    if is_array and schema.keys().isdisjoint({"items", "prefixItems", "unevaluatedItems"}):
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
