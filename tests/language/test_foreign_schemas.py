"""Schemas of other servers: the supported part is validated."""

import pytest

from gateway.json_types import Json, JsonObject
from gateway.language.schemas.json_schema import compile_foreign_schema

BAD = {"pattern": "((("}


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"oneOf": [{"type": "string", **BAD}, {"type": "string", "minLength": 1}]}, "x"),
        ({"not": BAD}, "x"),
        ({"items": BAD}, ["x"]),
        ({"if": BAD, "then": False}, "x"),
        ({"contains": BAD, "maxContains": 1}, ["x", "y"]),
        ({"patternProperties": {"(((": {}}, "unevaluatedProperties": False}, {"x": 1}),
        ({"properties": [], "additionalProperties": False}, {"x": 1}),
        ({"prefixItems": {}, "items": False}, [1]),
        ({"type": ["any", "string"]}, 1),
        ({"required": [1, "a"]}, {}),
        ({"dependencies": {"a": 5}, "$schema": "http://json-schema.org/draft-07/schema#"}, {"a": 1}),
        ({"anyOf": [5, {"type": "null"}]}, "x"),
        ({"allOf": [{"properties": {"a": {"items": [BAD]}}}]}, {"a": [1]}),
        ({"enum": [2**80]}, 2**80),
        ({"properties": {"a": BAD}, "not": {"required": ["b"], "allOf": [{"$ref": "#/properties/a"}]}}, {"b": "x"}),
        ({"properties": {"a": BAD}, "items": {"not": {"$ref": "#"}}}, [{"a": "x"}]),
        ({"properties": {"a": {"items": BAD}, "b": {"$ref": "#/properties/a/items"}}}, {"a": [1], "b": 1}),
    ],
)
def test_removed_keywords_never_reject_more_values(schema: JsonObject, value: Json) -> None:
    validator, unchecked = compile_foreign_schema(schema)

    assert unchecked
    assert validator.errors(value) == []
    assert validator.is_valid(value)


@pytest.mark.parametrize(
    "draft", ["http://json-schema.org/draft-04/schema#", "http://json-schema.org/draft-06/schema", None]
)
def test_older_drafts_are_validated(draft: str | None) -> None:
    schema: JsonObject = {"items": {"minimum": 1}, **({"$schema": draft} if draft else {})}
    validator, unchecked = compile_foreign_schema(schema)

    assert not unchecked
    assert [str(error) for error in validator.errors([0])] == ["/0 must be at least 1, was 0"]
