"""JSON Schemas in the configuration, sent unchanged except that interpolated values are converted to their type."""

from typing import Annotated, Final

from pydantic import AfterValidator

from gateway.config.models.base import plain_text, typed_interpolation
from gateway.config.models.interpolated_text import InterpolatedText
from gateway.json_types import Json

_NUMBERS_AND_FLAGS: Final = frozenset(
    {
        *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
        *("minLength", "maxLength", "minItems", "maxItems", "minContains", "maxContains"),
        *("minProperties", "maxProperties", "uniqueItems", "required"),
        *("readOnly", "writeOnly", "deprecated", "additionalProperties", "additionalItems", "unevaluatedProperties"),
    }
)
_VALUES: Final = frozenset({"default", "const"})
_LISTS_OF_VALUES: Final = frozenset({"enum", "examples"})
"""Keywords whose values have the type that the schema describes."""
_CHANGED: Final = (dict, list, InterpolatedText)
"""Values that are copied or converted. All other values are returned unchanged."""


def interpolated_schema(schema: Json) -> Json:
    """Copy a schema with plain values. `maximum: "${env:N}"` becomes a number, as does the default of an integer."""
    if isinstance(schema, list):
        return [interpolated_schema(item) for item in schema]
    if not isinstance(schema, dict):
        return plain_text(schema)
    takes_text = _takes_text(schema.get("type"))
    return {keyword: _typed(keyword, value, takes_text=takes_text) for keyword, value in schema.items()}


def _takes_text(of: Json) -> bool:
    # Without a type text is allowed, too, and stays text.
    return of is None or of == "string" or (isinstance(of, list) and "string" in of)


def _typed(keyword: str, value: Json, *, takes_text: bool) -> Json:
    if not isinstance(value, _CHANGED):
        return value
    if keyword in _VALUES and not takes_text:
        return plain_text(typed_interpolation(value))
    if keyword in _LISTS_OF_VALUES and not takes_text and isinstance(value, list):
        return [plain_text(typed_interpolation(item)) for item in value]
    if keyword in _NUMBERS_AND_FLAGS and isinstance(value, str):
        return plain_text(typed_interpolation(value))
    # Values may look like schemas, and are left as they are.
    is_schema = keyword not in _VALUES and keyword not in _LISTS_OF_VALUES
    return interpolated_schema(value) if is_schema else plain_text(value)


SchemaObject = Annotated[dict[str, Json], AfterValidator(interpolated_schema)]
"""A JSON Schema that is an object."""
