"""Compilation of JSON Schemas, and error messages of validation."""

import time
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.config.diagnostics.problems import Problems
from gateway.json_types import Json, JsonObject
from gateway.language.schemas.errors import MAX_MESSAGE
from gateway.language.schemas.json_schema import MAX_ERRORS, Validator, compile_schema, validation_errors
from gateway.language.schemas.keywords import referenced
from tests.examples import examples
from tests.executors.recording import OneFile

DRAFT_7 = "http://json-schema.org/draft-07/schema#"
DRAFT_2019 = "https://json-schema.org/draft/2019-09/schema"


def compiled(schema: JsonObject) -> Validator:
    problems = Problems(OneFile(Path("/")))
    validator = compile_schema(schema, problems)
    assert list(problems) == []
    return validator


def schema_errors(schema: JsonObject) -> list[str]:
    problems = Problems(OneFile(Path("/")))
    stand_in = compile_schema(schema, problems, what="input schema")
    assert stand_in.is_valid({"anything": 1}), "compilation continues with a schema that accepts everything"
    assert all(problem.message.startswith("not a valid input schema: ") for problem in problems)
    return [str(problem).replace("not a valid input schema: ", "") for problem in problems]


def error_messages(schema: JsonObject, instance: Json) -> list[str]:
    return [str(error) for error in compiled(schema).errors(instance, noun="argument")]


@pytest.mark.parametrize(
    ("schema", "refusal"),
    [
        (
            {"type": "strin"},
            (
                'type: must be one of "array", "boolean", "integer", "null", "number", "object", '
                '"string", was "strin" (did you mean "string"?)'
            ),
        ),
        (
            {"properties": {"a": {"minLength": -1}}},
            "properties.a.minLength: must be at least 0, was -1",
        ),
        (
            {"items": {"pattern": "[[:alpha:]]"}},
            ('items.pattern: the pattern "[[:alpha:]]" is not a supported ECMA-262 regular expression'),
        ),
        (
            {"properties": {"a": {"pattern": "(a"}}},
            ('properties.a.pattern: the pattern "(a" is not a supported ECMA-262 regular expression'),
        ),
        (
            {"patternProperties": {"[": {}}},
            ('patternProperties.[: the pattern "[" is not a supported ECMA-262 regular expression'),
        ),
        (
            {"items": {"$ref": "#/$defs/nowhere"}},
            "items.$ref: refers to #/$defs/nowhere, which the schema does not contain",
        ),
        (
            {"properties": {"a": True, "b": {"$ref": "#/properties/a/items"}}},
            "properties.b.$ref: refers to #/properties/a/items, which the schema does not contain",
        ),
        (
            {"$defs": {"unused": {"$ref": "https://example.com/schema.json"}}},
            (
                "$defs.unused.$ref: can only refer to locations in the same schema (#/…), "
                "because other documents are not fetched: https://example.com/schema.json"
            ),
        ),
        (
            {"$schema": "http://json-schema.org/draft-04/schema#"},
            ("$schema: names a dialect that is not supported; did you mean `http://json-schema.org/draft-07/schema`?"),
        ),
        (
            {"$ref": "#/elsewhere", "elsewhere": {"pattern": "("}},
            '$ref.pattern: the pattern "(" is not a supported ECMA-262 regular expression',
        ),
        ({"maximum": 2**70}, "cannot be written as JSON: Integer exceeds 64-bit range"),
        ({"description": "x" * 300_000}, "is larger than 256 KiB"),
    ],
)
def test_invalid_schema_is_reported_at_its_place(schema: JsonObject, refusal: str) -> None:
    assert schema_errors(schema) == [refusal]


def test_all_errors_of_a_schema_are_reported() -> None:
    assert (
        len(schema_errors({"properties": {"a": {"pattern": "("}, "b": {"$ref": "#/x"}, "c": {"$ref": "file:///x"}}}))
        == 3
    )


def test_no_value_matches_an_invalid_schema() -> None:
    [error] = validation_errors({"type": "strin"}, "x")
    assert str(error).startswith("the schema is invalid: must be one of")


def test_schema_nested_too_deeply_is_rejected() -> None:
    schema: JsonObject = {}
    for _ in range(70):
        schema = {"items": schema}
    assert schema_errors(schema) == ["is nested more than 64 deep"]


def test_metaschemas_are_not_fetched() -> None:
    assert schema_errors({"$ref": "https://json-schema.org/draft/2020-12/schema"}) != []


@pytest.mark.parametrize("dialect", [None, DRAFT_7, DRAFT_2019])
def test_references_within_a_schema_work_in_every_dialect(dialect: str | None) -> None:
    keyword = "definitions" if dialect == DRAFT_7 else "$defs"
    schema = {"items": {"$ref": f"#/{keyword}/count"}, keyword: {"count": {"type": "integer"}}}
    validator = compiled({"$schema": dialect, **schema} if dialect else schema)
    assert validator.is_valid([1])
    assert not validator.is_valid(["1"])


def test_recursive_schema_is_supported() -> None:
    tree = compiled({"type": "object", "properties": {"child": {"$ref": "#"}}})
    assert [str(error) for error in tree.errors({"child": {"child": 1}})] == ["/child/child must be an object, was 1"]


@pytest.mark.parametrize(
    ("schema", "instance", "words"),
    [
        ({"properties": {"depth": {"type": "integer"}}}, {"depth": "two"}, '/depth must be an integer, was "two"'),
        ({"properties": {"depth": {"maximum": 5}}}, {"depth": 9}, "/depth must be at most 5, was 9"),
        ({"exclusiveMinimum": 0}, 0, "must be greater than 0, was 0"),
        ({"multipleOf": 3}, 4, "must be a multiple of 3, was 4"),
        ({"required": ["path"]}, {}, "/path is required"),
        (
            {"properties": {"path": {}}, "additionalProperties": False},
            {"pth": 1},
            '/pth is not a known argument (did you mean "path"?)',
        ),
        ({"additionalProperties": False}, {"a": 1}, "accepts no arguments"),
        (
            {"properties": {"o": {"required": ["k"], "properties": {"k": {}}, "additionalProperties": False}}},
            {"o": {"x\n": 1}},
            ["/o/x\\n is not a known member", "/o/k is required"],
        ),
        ({"enum": ["red", "green"]}, "gren", 'must be one of "red", "green", was "gren" (did you mean "green"?)'),
        ({"const": 1}, 2, "must be 1, was 2"),
        ({"pattern": "^a+$"}, "b", 'must match the pattern ^a+$, was "b"'),
        ({"minLength": 2}, "b", 'must have at least 2 characters, was "b"'),
        ({"maxItems": 1}, [1, 2], "must have at most 1 item, had 2"),
        ({"format": "date"}, "soon", 'must be a date such as 2025-01-31, was "soon"'),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "5", 'must be an integer or null, was "5"'),
        (
            {"anyOf": [{"type": "object", "required": ["k"]}, {"type": "string"}]},
            {},
            "/k is required",
        ),
        (
            {"oneOf": [{"minimum": 1}, {"minimum": 2}]},
            3,
            "must match exactly one alternative, but matches several, was 3",
        ),
        ({"not": {"type": "string"}}, "x", 'must not match {"type":"string"}, was "x"'),
        ({"properties": {"a/b~c": {"type": "null"}}}, {"a/b~c": 1}, "/a~1b~0c must be null, was 1"),
    ],
)
def test_error_messages(schema: JsonObject, instance: Json, words: str | list[str]) -> None:
    assert error_messages(schema, instance) == ([words] if isinstance(words, str) else words)


def test_dollar_matches_only_the_end_of_the_text() -> None:
    assert not compiled({"pattern": "^a$"}).is_valid("a\n")


@pytest.mark.parametrize("pattern", ["^(a+)+$", r"^(a|a|aa)+(?!x)$"])
def test_patterns_end_in_bounded_time(pattern: str) -> None:
    validator = compiled({"pattern": pattern})
    begun = time.process_time()
    assert not validator.is_valid("a" * 40 + "b")
    assert len(validator.errors("a" * 40 + "b")) == 1
    assert time.process_time() - begun < 10


def test_exceeded_backtrack_limit_is_an_error_inside_not() -> None:
    assert not compiled({"not": {"pattern": r"^(a|a|aa)+(?!x)$"}}).is_valid("a" * 40 + "b")


@pytest.mark.parametrize("name", ["date", "time", "date-time", "email", "uuid", "ipv4", "ipv6", "uri"])
@pytest.mark.parametrize("dialect", [None, DRAFT_7, DRAFT_2019])
def test_eight_formats_are_validated_in_every_dialect(name: str, dialect: str | None) -> None:
    schema = {"format": name}
    assert not compiled({"$schema": dialect, **schema} if dialect else schema).is_valid("\n no such thing")


@pytest.mark.parametrize("name", ["hostname", "regex", "duration", "json-pointer", "iri", "made-up"])
def test_other_formats_are_annotations(name: str) -> None:
    assert compiled({"format": name}).is_valid("\n ( no such thing")


def test_errors_are_few_and_short() -> None:
    errors = compiled({"items": {"enum": ["x" * 90]}}).errors(["y" * 100_000] * 500)
    assert len(errors) == MAX_ERRORS
    assert all(len(error.message) <= MAX_MESSAGE + 1 for error in errors)
    [unknown] = compiled({"properties": {"a": {}}, "additionalProperties": False}).errors({"b" * 100_000: 1})
    assert len(str(unknown)) < MAX_MESSAGE


@pytest.mark.parametrize("bad", [["x"] * 300_000, [1] * 299_999 + ["x"]])
def test_errors_of_a_huge_value_are_found_quickly(bad: list[Json]) -> None:
    validator = compiled({"anyOf": [{"type": "array", "items": {"type": "integer"}}, {"type": "null"}]})
    begun = time.process_time()
    assert validator.errors(bad)
    assert time.process_time() - begun < 10


def test_first_error_of_a_large_value_is_reported() -> None:
    assert error_messages({"items": {"type": "integer"}}, [1] * 299_999 + ["x"]) == [
        '/299999 must be an integer, was "x"'
    ]
    schema = {"required": ["late", "absent"], "properties": {"bad": {"type": "integer"}}}
    huge = {"bad": "x", **{f"m{index}": list(range(60)) for index in range(20)}, "late": 1}
    assert error_messages(schema, huge) == ["/absent is required"]


KEYWORDS = st.fixed_dictionaries(
    {},
    optional={
        "type": st.sampled_from(["string", "integer", "number", "boolean", "null", "array", "object"]),
        "minimum": st.integers(-3, 3),
        "maxLength": st.integers(0, 2),
        "enum": st.lists(st.sampled_from([None, "a", 1, False, [], 1.5]), min_size=1, max_size=3, unique_by=repr),
        "required": st.lists(st.sampled_from("ab"), max_size=2, unique=True),
        "additionalProperties": st.booleans(),
        "uniqueItems": st.booleans(),
        "pattern": st.sampled_from(["^a", "b$", "^[ab]+$"]),
    },
)
SCHEMAS = st.recursive(
    KEYWORDS,
    lambda inner: st.fixed_dictionaries(
        {},
        optional={
            "properties": st.dictionaries(st.sampled_from("abc"), inner, max_size=2),
            "items": inner,
            "anyOf": st.lists(inner, min_size=1, max_size=2),
            "not": inner,
        },
    ),
    max_leaves=5,
)
INSTANCES = st.recursive(
    st.sampled_from([None, True, False, 0, 1, 1.5, 2.0, -4, "", "a", "ab", "abc"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=6,
)


@examples(200)
@given(schema=SCHEMAS, instance=INSTANCES)
def test_validity_equals_that_of_another_implementation(schema: JsonObject, instance: Json) -> None:
    validator = compiled(schema)
    assert validator.is_valid(instance) == jsonschema.Draft202012Validator(schema).is_valid(instance)
    assert bool(validator.errors(instance)) != validator.is_valid(instance)


BROKEN: st.SearchStrategy[dict[str, Any]] = st.recursive(
    st.dictionaries(
        st.sampled_from(["type", "minimum", "maxLength", "required", "enum", "pattern", "multipleOf", "uniqueItems"]),
        st.sampled_from(["string", 1, -1, 1.5, True, None, [], ["a"], ["a", "a"], {}]),
        max_size=2,
    ),
    lambda inner: st.dictionaries(
        st.sampled_from(["items", "not", "additionalProperties", "properties", "anyOf", "$defs", "prefixItems"]),
        inner | st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
        max_size=2,
    ),
    max_leaves=4,
)
IMPLEMENTATIONS: dict[str | None, Any] = {
    None: jsonschema.Draft202012Validator,
    DRAFT_2019: jsonschema.Draft201909Validator,
    DRAFT_7: jsonschema.Draft7Validator,
}


@examples(200)
@given(schema=BROKEN, dialect=st.sampled_from([*IMPLEMENTATIONS]))
def test_schema_validity_equals_that_of_another_implementation(schema: JsonObject, dialect: str | None) -> None:
    schema = {"$schema": dialect, **schema} if dialect else schema
    metaschema = IMPLEMENTATIONS[dialect](IMPLEMENTATIONS[dialect].META_SCHEMA)
    problems = Problems(OneFile(Path("/")))
    compile_schema(schema, problems)
    assert (list(problems) == []) == metaschema.is_valid(schema)


@pytest.mark.parametrize("index", ["7", "9" * 400, "9" * 5000])
def test_reference_to_a_missing_list_item_is_an_error(index: str) -> None:
    schema = {"allOf": [{"type": "integer"}]}
    assert referenced(schema, "#/allOf/0") == {"type": "integer"}
    assert referenced(schema, f"#/allOf/{index}") is None
