"""Which keywords of JSON Schema hold schemas, in every dialect that is spoken here."""

from typing import Final

ONE_SCHEMA: Final = frozenset({
    "additionalItems", "additionalProperties", "contains", "contentSchema", "else", "if", "items", "not",
    "propertyNames", "then", "unevaluatedItems", "unevaluatedProperties",
})  # fmt: skip
SCHEMA_LISTS: Final = frozenset({"allOf", "anyOf", "items", "oneOf", "prefixItems"})
SCHEMA_MAPS: Final = frozenset({
    "$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties", "properties",
})  # fmt: skip
