"""The keywords of JSON Schema that hold schemas, in every supported dialect."""

from typing import Final

ONE_SCHEMA: Final = frozenset({
    "additionalItems", "additionalProperties", "contains", "contentSchema", "else", "if", "items", "not",
    "propertyNames", "then", "unevaluatedItems", "unevaluatedProperties",
})  # fmt: skip
SCHEMA_LISTS: Final = frozenset({"allOf", "anyOf", "items", "oneOf", "prefixItems"})
SCHEMA_MAPS: Final = frozenset({
    "$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties", "properties",
})  # fmt: skip
