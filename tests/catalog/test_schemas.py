"""Inputs of tools: the three ways to declare them, and preparing the arguments of calls."""

from pathlib import Path

import pytest

from gateway.catalog.arguments import CompiledArguments
from gateway.catalog.compile.arguments import NO_ARGUMENTS, compile_arguments
from gateway.config.diagnostics.problems import Problems
from gateway.config.models.definitions import Tool
from gateway.errors import ExecutionError
from gateway.json_types import Json, JsonObject
from gateway.wire.headers import HeaderParameter
from tests.executors.recording import OneFile


def tool(**keys: Json) -> Tool:
    return Tool.model_validate({"content": "hello", **keys})


def compiled(folder: Path = Path("/"), *, derived: JsonObject | None = None, **keys: Json) -> CompiledArguments:
    problems = Problems(OneFile(folder))
    arguments = compile_arguments(tool(**keys), problems, derived=derived)
    assert list(problems) == []
    return arguments


def problems_of(folder: Path = Path("/"), **keys: Json) -> list[str]:
    problems = Problems(OneFile(folder))
    compile_arguments(tool(**keys), problems)
    return [str(problem) for problem in problems]


def refusal(arguments: CompiledArguments, given: JsonObject) -> list[str]:
    with pytest.raises(ExecutionError) as caught:
        arguments.prepare(given)
    headline, *lines = str(caught.value).splitlines()
    assert headline == "Invalid arguments:"
    return lines


def test_short_form_becomes_a_closed_object() -> None:
    arguments = compiled(
        input={
            "path": {"type": "string", "description": "Where", "required": True, "default": "/"},
            "depth": {"type": "integer", "default": 1},
            "name": "string",
            "note": "string?",
            "filter": {"type": "object", "required": ["kind"]},
            "extra": {"type": "boolean", "required": False},
        }
    )
    assert arguments.schema == {
        "type": "object",
        "properties": {
            "path": {"type": "string", "description": "Where", "default": "/"},
            "depth": {"type": "integer", "default": 1},
            "name": {"type": "string"},
            "note": {"type": "string"},
            "filter": {"type": "object", "required": ["kind"]},
            "extra": {"type": "boolean"},
        },
        "required": ["path", "name", "filter"],
        "additionalProperties": False,
    }
    assert list(arguments.schema["properties"]) == ["path", "depth", "name", "note", "filter", "extra"]
    assert arguments.inputs.always_given == {"path", "depth", "name", "filter"}
    assert not arguments.inputs.is_open


def test_long_form_is_sent_unchanged() -> None:
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "$comment": "kept",
        "type": "object",
        "properties": {"a": {"$ref": "#/definitions/a"}, "b": True},
        "definitions": {"a": {"type": "string"}},
    }
    arguments = compiled(input_schema=schema)
    assert arguments.schema == schema
    assert list(arguments.schema) == list(schema)
    assert set(arguments.inputs.schemas) == {"a", "b"}
    assert arguments.inputs.is_open


def test_tool_without_input_accepts_no_arguments() -> None:
    assert compiled().schema == NO_ARGUMENTS
    assert compiled(input={}).schema == NO_ARGUMENTS
    assert refusal(compiled(), {"a": 1}) == ["accepts no arguments"]


def test_schema_is_derived_from_the_signature() -> None:
    derived = {"type": "object", "properties": {"a": {"type": "integer"}}, "additionalProperties": False}
    assert compiled(derived=derived).schema == derived
    assert compiled(derived=derived, input={"b": "string"}).schema["properties"] == {"b": {"type": "string"}}


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"input": {"a": "strng"}}, "input.a: unknown type 'strng'; did you mean `string`?"),
        (
            {"input": {"9a": "string"}},
            "input.9a: invalid input name: use letters, digits, _ and -, and do not start with a digit or -",
        ),
        (
            {"input": {"a": {"type": "integer", "minimum": "0"}}},
            'input.a.minimum: not a valid JSON Schema: must be a number, was "0"',
        ),
        (
            {"input": {"a": {"type": "integer", "default": "one"}}},
            'input.a.default: the default is invalid: must be an integer, was "one"',
        ),
        ({"input_schema": {"properties": {}}}, "input_schema: the root of an input schema must have `type: object`"),
        (
            {"input_schema": {"type": "object", "properties": {"a": {"type": "string", "within": "/srv"}}}},
            "input_schema.properties.a.within: `within` is allowed only at the top level of an entry in `input`",
        ),
        ({"input": {"a": {"type": "string", "within": 5}}}, "input.a.within: expected a directory"),
        (
            {"input": {"a": {"type": "integer", "within": "/"}}},
            "input.a.within: `within` requires `type: string`, or an array of strings",
        ),
        (
            {"input": {"a": {"type": "string", "within": "/no/such/place"}}},
            "input.a.within: directory /no/such/place does not exist",
        ),
    ],
)
def test_schema_errors_are_located(keys: JsonObject, message: str) -> None:
    assert problems_of(**keys) == [message]


def test_templates_accept_the_name_of_an_invalid_input() -> None:
    arguments = compile_arguments(tool(input={"a": "strng", "b": {"type": 5}}), Problems(OneFile(Path("/"))))
    assert set(arguments.inputs.schemas) == {"a", "b"}


def test_defaults_are_copied_for_each_call() -> None:
    arguments = compiled(
        input={
            "list": {"type": "array", "default": [1]},
            "nested": {"type": "object", "required": False, "properties": {"n": {"type": "integer", "default": 2}}},
        }
    )
    first = arguments.prepare({"nested": {}})
    assert first == {"list": [1], "nested": {"n": 2}}
    first["list"].append(5)
    given: JsonObject = {"nested": {}}
    assert arguments.prepare(given) == {"list": [1], "nested": {"n": 2}}
    assert given == {"nested": {}}


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("integer", "5", 5),
        ("integer", "-5", -5),
        ("integer", "123456789012345678901234567890", 123456789012345678901234567890),
        ("number", "1.5", 1.5),
        ("number", "2", 2),
        ("boolean", "true", True),
        ("array", "[1,2]", [1, 2]),
        ("object", '{"a": 1}', {"a": 1}),
    ],
)
def test_json_text_is_coerced_to_the_expected_type(kind: str, text: str, value: Json) -> None:
    prepared = compiled(input={"x": kind}).prepare({"x": text})["x"]
    assert (prepared, type(prepared)) == (value, type(value))


@pytest.mark.parametrize(
    ("kind", "given"),
    [
        ("integer", " 5"),
        ("integer", "5x"),
        ("integer", "1.5"),
        ("integer", "true"),
        ("integer", ""),
        ("number", "NaN"),
        ("number", "1e999"),
        ("boolean", "True"),
        ("boolean", "1"),
        ("boolean", 1),
        ("string", 5),
        ("string", True),
        ("array", "[" * 70 + "]" * 70),
    ],
)
def test_other_values_are_not_coerced(kind: str, given: Json) -> None:
    assert len(refusal(compiled(input={"x": kind}), {"x": given})) == 1


def test_nested_values_and_alternatives_are_coerced() -> None:
    arguments = compiled(
        input={
            "filter": {
                "type": "object",
                "properties": {
                    "limit": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
                    "page": {"type": "integer", "default": 1},
                },
            },
            "level": {"enum": [1, 2], "required": False},
        }
    )
    assert arguments.prepare({"filter": '{"limit": "3"}', "level": "2"}) == {
        "filter": {"limit": 3, "page": 1},
        "level": 2,
    }
    given = {"filter": {"limit": "3"}}
    arguments.prepare(given)
    assert given == {"filter": {"limit": "3"}}, "the arguments of the caller are not modified"


def test_valid_strings_are_not_coerced() -> None:
    assert compiled(input={"x": {"type": ["string", "integer"]}}).prepare({"x": "5"}) == {"x": "5"}


def test_coercion_can_be_disabled() -> None:
    assert refusal(compiled(input={"x": "integer"}, coerce=False), {"x": "5"}) == ['/x must be an integer, was "5"']
    assert refusal(compiled(input={"x": "integer?"}, coerce=False), {"x": None}) == ["/x must be an integer, was null"]


SPARSE: JsonObject = {
    "type": "object",
    "properties": {
        "text": {"type": "string"},
        "least": {"type": "integer", "default": 1},
        "choice": {"enum": ["a", "b"]},
        "either": {"anyOf": [{"type": "integer"}, {"type": "boolean"}]},
        "null": {"type": ["string", "null"]},
        "filter": {"type": "object", "properties": {"by": {"type": "string"}, "n": {"type": "integer", "default": 2}}},
        "list": {"type": "array", "items": {"type": "object", "properties": {"a": {"type": "string"}}}},
        "must": {"type": "string"},
    },
    "dependentRequired": {"text": ["choice"]},
    "required": ["must"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("given", "prepared"),
    [
        ({"text": None, "least": None, "choice": None, "either": None}, {}),
        ({"null": None}, {"null": None}),
        ({"filter": {"by": None, "n": None}}, {"filter": {"n": 2}}),
        ({"filter": '{"by": null}', "least": "3"}, {"filter": {"n": 2}, "least": 3}),
        ({"list": [{"a": None}, {"a": "x"}]}, {"list": [{}, {"a": "x"}]}),
    ],
)
def test_null_for_an_optional_member_is_omitted(given: JsonObject, prepared: JsonObject) -> None:
    arguments = compiled(input_schema=SPARSE)
    assert arguments.prepare({**given, "must": "x"}) == {"least": 1, **prepared, "must": "x"}


@pytest.mark.parametrize(
    ("given", "wrong"),
    [
        ({"must": None}, "/must must be a string, was null"),
        ({"must": "x", "zzz": None}, "/zzz is not a known argument"),
        ({"must": "x", "list": [None]}, "/list/0 must be an object, was null"),
        ({"must": "x", "text": "t", "choice": None}, '/choice must be one of "a", "b", was null'),
    ],
)
def test_null_for_a_required_member_is_rejected(given: JsonObject, wrong: str) -> None:
    assert wrong in refusal(compiled(input_schema=SPARSE), given)


def test_whole_floats_become_integers_if_the_schema_has_integers() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}, "x": {"type": "number"}}}
    given: JsonObject = {"n": 3.0, "x": 4.0, "y": 4.5, "list": [1.0, "2.0", 2**60, 2.0**60], "by_name": {"a": -7.0}}
    before = repr(given)
    expected = {"n": 3, "x": 4, "y": 4.5, "list": [1, "2.0", 2**60, 2.0**60], "by_name": {"a": -7}}
    assert repr(compiled(input_schema=schema).prepare(given)) == repr(expected)
    assert repr(given) == before, "the arguments of the caller do not change"
    assert repr(compiled(input_schema={"type": "object"}).prepare(given)) == before
    assert compiled(input_schema=schema).prepare({"n": "4.0"}) == {"n": 4}


def test_invalid_arguments_are_named_by_pointer() -> None:
    arguments = compiled(input={"path": "string", "depth": {"type": "integer", "maximum": 5, "default": 1}})
    assert refusal(arguments, {"depth": "9", "pth": "/"}) == [
        "/depth must be at most 5, was 9",
        '/pth is not a known argument (did you mean "path"?)',
        "/path is required",
    ]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    (root / "inner").mkdir(parents=True)
    (tmp_path / "root-beside").mkdir()
    (root / "out").symlink_to(tmp_path / "root-beside")
    (root / "loop").symlink_to(root / "loop")
    (root / "in").symlink_to(root / "inner")
    return root


def test_confined_path_is_unchanged(root: Path) -> None:
    arguments = compiled(root.parent, input={"path": {"type": "string", "within": "root"}})
    assert "within" not in arguments.schema["properties"]["path"]
    for path in (root, root / "inner", root / "not there yet", root / "in", f"{root}/inner/../x"):
        assert arguments.prepare({"path": str(path)}) == {"path": str(path)}


def test_default_path_is_confined(root: Path) -> None:
    arguments = compiled(input={"path": {"type": "string", "within": str(root), "default": "/etc"}})
    assert len(refusal(arguments, {})) == 1


def test_header_parameters_are_found_through_properties() -> None:
    arguments = compiled(
        input={
            "region": {"type": "string", "x-mcp-header": "Region"},
            "at": {"type": "object", "properties": {"zone": {"type": "integer", "x-mcp-header": "Zone"}}},
        }
    )
    assert arguments.header_parameters == (
        HeaderParameter(name="Region", path=("region",)),
        HeaderParameter(name="Zone", path=("at", "zone")),
    )


def test_input_named_like_the_header_keyword_is_allowed() -> None:
    schema = {"type": "object", "properties": {"x-mcp-header": {"type": "string"}}}
    assert compiled(input_schema=schema).header_parameters == ()


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({"a": {"type": "number", "x-mcp-header": "A"}}, "is only allowed on a string, integer or boolean"),
        ({"a": {"x-mcp-header": "A"}}, "is only allowed on a string, integer or boolean"),
        ({"a": {"type": "string", "x-mcp-header": "a b"}}, "must be a header field name"),
        ({"a": {"type": "string", "x-mcp-header": ""}}, "must be a header field name"),
        ({"a": {"type": "string", "x-mcp-header": 5}}, "must be a header field name"),
        ({"a": {"items": {"type": "string", "x-mcp-header": "A"}}}, "reached through `properties`"),
        ({"a": {"anyOf": [{"type": "string", "x-mcp-header": "A"}]}}, "reached through `properties`"),
        (
            {"a": {"type": "string", "x-mcp-header": "A"}, "b": {"type": "string", "x-mcp-header": "a"}},
            "x-mcp-header a is used twice",
        ),
    ],
)
def test_invalid_header_parameter_is_an_error(schema: JsonObject, message: str) -> None:
    (problem,) = problems_of(input=schema)
    assert message in problem
    assert problem.startswith("input.")
