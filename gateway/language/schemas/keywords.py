"""The keywords of JSON Schema that hold schemas, in every supported dialect."""

from collections.abc import Callable
from typing import Final

from gateway.json_types import Json

ONE_SCHEMA: Final = frozenset({
    "additionalItems", "additionalProperties", "contains", "contentSchema", "else", "if", "items", "not",
    "propertyNames", "then", "unevaluatedItems", "unevaluatedProperties",
})  # fmt: skip
SCHEMA_LISTS: Final = frozenset({"allOf", "anyOf", "items", "oneOf", "prefixItems"})
SCHEMA_MAPS: Final = frozenset({
    "$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties", "properties",
})  # fmt: skip


def rewritten(schema: Json, change: Callable[[dict[str, Json]], None]) -> Json:
    """A copy of a schema, in which each schema that is an object was changed, the inner ones first."""
    if isinstance(schema, list):
        return [rewritten(item, change) for item in schema]
    if not isinstance(schema, dict):
        return schema
    copy: dict[str, Json] = dict(schema)
    for keyword, value in schema.items():
        if keyword in SCHEMA_MAPS and isinstance(value, dict):
            copy[keyword] = {name: rewritten(member, change) for name, member in value.items()}
        elif keyword in ONE_SCHEMA or keyword in SCHEMA_LISTS:
            copy[keyword] = rewritten(value, change)
    change(copy)
    return copy
