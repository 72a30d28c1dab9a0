"""Schemas, descriptions and calls from signatures of functions."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired

import pytest
from pydantic import BaseModel, Field
from typing_extensions import TypedDict

from gateway.config.diagnostics.problems import Problems
from gateway.errors import ExecutionError
from gateway.executors.python.signature import Signature, read_docstring, read_signature
from gateway.json_types import JsonObject
from gateway.language.scope import Inputs
from gateway.plugin import Context, Image, SyncContext, Text
from tests.executors.recording import OneFile, RecordingContext

Function = Callable[..., Any]


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


@dataclass
class Point:
    x: int
    y: int = 0


class Order(BaseModel):
    count: Annotated[int, Field(ge=1, description="How many.")]
    due: date | None = None
    parts: list["Order"] = []


class Opaque:
    """Neither a model nor a dataclass."""


class Row(TypedDict):
    key: str
    value: NotRequired[int]


def signature_of(function: Function) -> Signature:
    problems = Problems(OneFile(Path("/")))
    signature = read_signature(function, name="shop:f", problems=problems)
    assert signature is not None, list(problems)
    return signature


def problems_of(function: Function) -> list[str]:
    problems = Problems(OneFile(Path("/")))
    read_signature(function, name="shop:f", problems=problems)
    return [str(problem) for problem in problems]


def bound(function: Function, arguments: JsonObject) -> dict[str, Any]:
    return signature_of(function).bind(arguments, RecordingContext())


def test_schema_comes_from_hints_and_docstring() -> None:
    def order(  # type: ignore[no-untyped-def]  # noqa: D417 - some are described elsewhere, or nowhere
        item: str,
        count: Annotated[int, Field(ge=1, description="From the hint.")] = 1,
        colour: Colour = Colour.RED,
        size: Literal["s", "m"] | None = None,
        untyped=3,  # noqa: ANN001 - what this is about
        rating: float = Field(default=2.5, le=5),
    ) -> None:
        """Order something.

        It is sent at once.

        Args:
            item: What to order,
                as the catalogue has it.
            count (int): From the docstring.

        Returns:
            Nothing.
        """

    signature = signature_of(order)
    assert signature.description == "Order something.\n\nIt is sent at once."
    assert signature.output_schema is None
    assert signature.input_schema == {
        "type": "object",
        "properties": {
            "item": {"type": "string", "description": "What to order, as the catalogue has it."},
            "count": {"type": "integer", "minimum": 1, "description": "From the hint.", "default": 1},
            "colour": {"$ref": "#/$defs/Colour", "default": "red"},
            "size": {"anyOf": [{"type": "string", "enum": ["s", "m"]}, {"type": "null"}], "default": None},
            "untyped": {"default": 3},
            "rating": {"type": "number", "maximum": 5, "default": 2.5},
        },
        "required": ["item"],
        "additionalProperties": False,
        "$defs": {"Colour": {"enum": ["red", "blue"], "title": "Colour", "type": "string"}},
    }


def test_function_without_parameters_accepts_no_arguments() -> None:
    assert signature_of(lambda: None).input_schema == {"type": "object", "additionalProperties": False}


def test_keyword_arguments_of_any_name_open_the_schema() -> None:
    def anything(**others: object) -> None: ...

    assert signature_of(anything).input_schema["additionalProperties"] is True
    assert bound(anything, {"a-b": 1}) == {"a-b": 1}


def test_arguments_are_converted_to_their_hints() -> None:
    def order(
        point: Point, order: Order, colour: Colour, when: datetime, count: int, path: Path, tags: set[str]
    ) -> None: ...

    assert bound(
        order,
        {
            "point": {"x": 1},
            "order": {"count": 2, "due": "2025-01-31"},
            "colour": "blue",
            "when": "2025-01-31T12:00:00",
            "count": 5.0,
            "path": "/srv",
            "tags": ["a", "a"],
        },
    ) == {
        "point": Point(1),
        "order": Order(count=2, due=date(2025, 1, 31)),
        "colour": Colour.BLUE,
        "when": datetime(2025, 1, 31, 12),  # noqa: DTZ001 - so it was given
        "count": 5,
        "path": Path("/srv"),
        "tags": {"a"},
    }


def test_plain_json_is_passed_unchanged() -> None:
    def take(a: dict[str, Any], b: list[str], c: Any, d: str | None) -> None: ...

    given = {"a": {"x": object}, "b": ["1"], "c": [1], "d": None}
    assert bound(take, given) == given


def test_parameter_can_have_any_name() -> None:
    def take(_a: int, model_config: int = Field(2), copy: int = 3, json: int = 4) -> None: ...

    assert bound(take, {"_a": 1, "json": 5}) == {"_a": 1, "model_config": 2, "json": 5}
    assert list(signature_of(take).input_schema["properties"]) == ["_a", "model_config", "copy", "json"]


def test_value_of_another_type_than_the_hint_is_an_error() -> None:
    """The definition's own schema can allow it."""

    def take(a: str) -> None: ...

    with pytest.raises(ExecutionError, match="/a is invalid: Input should be a valid string, was 1"):
        bound(take, {"a": 1})


def test_default_of_a_field_is_its_value() -> None:
    def take(
        tags: list[str] = Field(default_factory=list),  # noqa: B008 - what this is about
        size: int = Field(3),
    ) -> None: ...

    assert bound(take, {}) == {"tags": [], "size": 3}


def test_default_in_a_hint_is_its_value() -> None:
    def f(size: Annotated[int, Field(default=3)], parts: Annotated[list[str], Field(default_factory=list)]) -> None: ...

    assert "required" not in signature_of(f).input_schema
    assert bound(f, {}) == {"size": 3, "parts": []}
    assert bound(f, {"size": 4, "parts": ["a"]}) == {"size": 4, "parts": ["a"]}


def test_defaults_without_json_form_are_not_in_the_schema() -> None:
    def take(a: str = None, b: object = object()) -> None: ...  # type: ignore[assignment]  # noqa: RUF013 - people write it

    assert signature_of(take).input_schema["properties"] == {"a": {"type": "string"}, "b": {}}
    assert bound(take, {}) == {}


def test_model_errors_name_their_pointer() -> None:
    def take(order: Order, other: int) -> None: ...

    with pytest.raises(ExecutionError) as caught:
        bound(take, {"order": {"count": 0, "parts": [{"count": "x"}]}})
    assert str(caught.value).splitlines() == [
        "Invalid arguments:",
        "/order/count is invalid: Input should be greater than or equal to 1, was 0",
        (
            "/order/parts/0/count is invalid: Input should be a valid integer, unable to parse string as an integer, "
            'was "x"'
        ),
        "/other is required",
    ]


def test_context_parameter_is_not_an_argument() -> None:
    async def asynchronous(a: str, context: Context) -> None: ...
    def synchronous(a: str, *, context: SyncContext | None = None) -> None: ...

    for function in (asynchronous, synchronous):
        signature = signature_of(function)
        context = RecordingContext()
        assert list(signature.input_schema["properties"]) == ["a"]
        assert signature.bind({"a": "x", "context": "forged"}, context) == {"a": "x", "context": context}


def test_annotations_as_strings_are_understood() -> None:
    def take(point: "Point", context: "SyncContext") -> "Row": ...  # type: ignore[empty-body]

    signature = signature_of(take)
    assert signature.context_parameter == "context"
    assert signature.output_schema is not None


def test_other_callables_than_functions_can_be_called() -> None:
    class Asynchronous:
        """What it does."""

        async def __call__(self, n: int) -> int:
            return n

    async def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    assert signature_of(Asynchronous()).is_async
    assert signature_of(Asynchronous()).description == "What it does."
    assert signature_of(partial(add, b=1)).is_async
    assert signature_of(partial(add, 1)).description == "Add."
    assert not signature_of(Point).is_async


def positional_only(a: int, /) -> None: ...
def variadic(*rest: int) -> None: ...
async def blocking_context(context: SyncContext) -> None: ...
def async_context(context: Context) -> None: ...
def two_contexts(a: SyncContext, b: SyncContext) -> None: ...
def generator() -> Any:
    yield 1


def unresolved(a: "NoSuchName") -> None: ...  # type: ignore[name-defined]  # noqa: F821 - what this is about


@pytest.mark.parametrize(
    ("function", "problem"),
    [
        (positional_only, "shop:f has the positional-only parameter a, but arguments are passed by name"),
        (variadic, "shop:f has *rest, but arguments are passed by name"),
        (
            blocking_context,
            "shop:f is an async function, so its parameter context must be a Context, not a SyncContext",
        ),
        (async_context, "shop:f is a plain function, so its parameter context must be a SyncContext, not a Context"),
        (two_contexts, "shop:f has two context parameters, a and b"),
        (generator, "shop:f is a generator function. Return a list instead"),
        (unresolved, "cannot read the signature of shop:f: NameError: name 'NoSuchName' is not defined"),
    ],
)
def test_function_that_cannot_be_called_from_json_is_rejected(function: Function, problem: str) -> None:
    assert problems_of(function) == [problem]


def test_hint_without_a_json_form_is_rejected() -> None:
    def take(a: Callable[[], None]) -> None: ...
    def take_opaque(b: Opaque) -> None: ...

    for function in (take, take_opaque):
        (problem,) = problems_of(function)
        assert problem.startswith("shop:f has parameters that cannot be created from JSON: ")


@pytest.mark.parametrize(
    ("hint", "schema"),
    [
        (
            Point,
            {
                "properties": {"x": {"type": "integer"}, "y": {"default": 0, "type": "integer"}},
                "required": ["x"],
                "title": "Point",
                "type": "object",
            },
        ),
        (
            Row,
            {
                "properties": {"key": {"type": "string"}, "value": {"type": "integer"}},
                "required": ["key"],
                "title": "Row",
                "type": "object",
            },
        ),
        (list[int], {"items": {"type": "integer"}, "type": "array"}),
        (dict[str, int], {"additionalProperties": {"type": "integer"}, "type": "object"}),
        *((hint, None) for hint in (dict, list, dict[str, Any], list[Any], str, int, bool, None, Any, bytes)),
        *((hint, None) for hint in (Image, list[Image], list[Text | str], Point | None, Point | str)),
    ],
)
def test_return_annotation_is_the_output_schema(hint: object, schema: JsonObject | None) -> None:
    def give() -> None: ...

    give.__annotations__["return"] = hint
    assert signature_of(give).output_schema == schema


def test_recursive_result_type_is_an_object() -> None:
    def give() -> Order: ...  # type: ignore[empty-body]

    schema = signature_of(give).output_schema
    assert schema is not None
    assert (schema["type"], schema["$ref"]) == ("object", "#/$defs/Order")


def test_return_annotation_without_schema_is_a_warning() -> None:
    def give() -> Opaque: ...  # type: ignore[empty-body]

    (warning,) = problems_of(give)
    assert warning.startswith("shop:f has no output schema, because its return annotation has none: ")


@pytest.mark.parametrize(
    ("inputs", "every_input", "problems"),
    [
        (Inputs(schemas={"item": {}}, always_given=frozenset({"item"})), True, []),
        (
            Inputs(schemas={"item": {}}),
            True,
            ["the parameter item of shop:f needs a default, because the input is optional"],
        ),
        (
            Inputs(schemas={"itme": {}}, always_given=frozenset({"itme"})),
            True,
            ["shop:f has no parameter itme; did you mean `item`?"],
        ),
        (
            Inputs(schemas={"other": {}}, always_given=frozenset({"other"})),
            True,
            ["the parameter item of shop:f is not among the inputs", "shop:f has no parameter other"],
        ),
        (Inputs(schemas={"item": {}, "other": {}}, always_given=frozenset({"item"})), False, []),
        (Inputs(is_open=True), True, []),
    ],
)
def test_function_must_accept_the_inputs_of_its_definition(
    inputs: Inputs,
    every_input: bool,  # noqa: FBT001 - a parametrised value
    problems: list[str],
) -> None:
    def take(item: str, count: int = 1) -> None: ...

    found = Problems(OneFile(Path("/")))
    signature_of(take).check(inputs, found, every_input=every_input)
    assert [str(problem) for problem in found] == problems


def test_docstring_without_sections_is_the_description() -> None:
    assert read_docstring("One.\n\n    Two: three.") == ("One.\n\nTwo: three.", {})
