"""Detection and description of schema changes that break clients."""

from typing import Any, Final

import pytest

from gateway.catalog.manifest import Audience, Contract, Manifest
from gateway.reload.breaking_changes import breaking_changes

STRING: Final = {"type": "string"}
OPTIONAL: Final = {"type": ["string", "null"]}
NUMBER: Final = {"type": "number"}
EVERYBODY: Final = {"everybody": Audience(names={}, fingerprints={})}


def manifest(**contracts: Contract) -> Manifest:
    named = {f"tools.{name}": contract for name, contract in contracts.items()}
    return Manifest(written={}, left_out={}, code={}, audiences=EVERYBODY, contracts=named)


def of_input(old: Any, new: Any) -> list[str]:
    before, after = Contract(input=old, audiences=["everybody"]), Contract(input=new, audiences=["everybody"])
    return [what for _, what in breaking_changes(manifest(t=before), manifest(t=after))]


def of_output(old: Any, new: Any) -> list[str]:
    before, after = Contract(output=old, audiences=[]), Contract(output=new, audiences=[])
    return [what for _, what in breaking_changes(manifest(t=before), manifest(t=after))]


def inputs(required: tuple[str, ...] = (), **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": [*required], "additionalProperties": False}


@pytest.mark.parametrize(
    ("old", "new", "reasons"),
    [
        (inputs(), inputs(("a",), a={}), ["`a` is a new required input"]),
        (inputs(a={}), inputs(("a",), a={}), ["`a` is now required"]),
        (inputs(a={}), inputs(), ["`a` is no longer accepted"]),
        (inputs(a={}), {"type": "object"}, []),
        ({"type": "object"}, inputs(), ["the input no longer accepts undeclared names"]),
        (inputs(a=STRING), inputs(a={"type": "integer"}), ["the type of `a` changed from string to integer"]),
        (inputs(a={"type": "integer"}), inputs(a={"type": "number"}), []),
        (inputs(a=NUMBER), inputs(a={"type": "integer"}), ["the type of `a` changed from number to integer"]),
        (inputs(a=OPTIONAL), inputs(a=STRING), ["the type of `a` changed from null or string to string"]),
        (inputs(a={}), inputs(a={"type": "string"}), ["`a` must now be of type string"]),
        (inputs(a={"type": "string"}), inputs(a={}), []),
        (inputs(a={"enum": ["x", "y"]}), inputs(a={"enum": ["x"]}), ['`a` no longer accepts "y"']),
        (inputs(a={"enum": ["x"]}), inputs(a={"type": "string", "enum": ["x", "y"]}), []),
        (inputs(a={"type": "string"}), inputs(a={"type": "string", "const": "x"}), ['`a` accepts only "x"']),
        (inputs(a={"maximum": 9}), inputs(a={"maximum": 5}), ["`a` has a stricter `maximum`: 5 instead of 9"]),
        (inputs(a={"maximum": 5}), inputs(a={"maximum": 9}), []),
        (inputs(a={"minLength": 1}), inputs(a={"minLength": 2}), ["`a` has a stricter `minLength`: 2 instead of 1"]),
        (inputs(a={}), inputs(a={"maxItems": 2}), ["`a` has a new `maxItems`: 2"]),
        (inputs(a={"pattern": "x"}), inputs(a={"pattern": "y"}), ["`a` has a different `pattern`"]),
        (inputs(a={"pattern": "x"}), inputs(a={}), []),
        (inputs(a={"description": "x", "default": 1}), inputs(a={"description": "y", "title": "A"}), []),
        (
            inputs(a={"type": "array", "items": {"type": "string"}}),
            inputs(a={"type": "array", "items": {"type": "object"}}),
            ["the type of `a[]` changed from string to object"],
        ),
        (inputs(a=inputs(b={})), inputs(a=inputs(("b",), b={})), ["`a.b` is now required"]),
        (inputs(a={"anyOf": [STRING, NUMBER]}), inputs(a={"anyOf": [STRING]}), ["`a` has a different `anyOf`"]),
        (inputs(a={"oneOf": [STRING]}), inputs(a={"oneOf": [{**STRING, "title": "A"}]}), []),
        (
            inputs(a={"$ref": "#/$defs/A"}) | {"$defs": {"A": {"type": "string"}}},
            inputs(a={"$ref": "#/$defs/B"}) | {"$defs": {"B": {"type": "string", "description": "b"}}},
            [],
        ),
        (
            inputs(a={"$ref": "#/$defs/A"}, b={"$ref": "#/$defs/A"}) | {"$defs": {"A": STRING}},
            inputs(a=STRING, b={"type": "integer"}),
            ["the type of `b` changed from string to integer"],
        ),
        (inputs(a={}), inputs(a=False), ["`a` has a new `not`"]),
    ],
)  # fmt: skip
def test_stricter_inputs_are_breaking(old: Any, new: Any, reasons: list[str]) -> None:
    assert of_input(old, new) == reasons
    assert of_input(old, old) == []


OBJECT: Final = {"type": "object", "properties": {"a": {"type": "string"}, "b": {}}, "required": ["a"]}


@pytest.mark.parametrize(
    ("old", "new", "reasons"),
    [
        (OBJECT, None, ["no longer has an output schema"]),
        (None, OBJECT, []),
        (OBJECT, {**OBJECT, "properties": {"a": {"type": "string"}, "b": {}, "c": {}}}, []),
        (OBJECT, {**OBJECT, "properties": {"a": {"type": "string"}}}, ["output field `b` is gone"]),
        (OBJECT, {**OBJECT, "required": []}, ["output field `a` can be missing"]),
        (
            OBJECT,
            {**OBJECT, "properties": {"a": {"type": "integer"}, "b": {}}},
            ["the type of output field `a` changed from string to integer"],
        ),
        ({"type": "number"}, {"type": "integer"}, []),
        ({"type": "string"}, {}, ["the output can have any type, not only string"]),
        (
            {"type": "array", "items": OBJECT},
            {"type": "array", "items": {**OBJECT, "required": []}},
            ["output field `[].a` can be missing"],
        ),
    ],
)  # fmt: skip
def test_missing_output_is_breaking(old: Any, new: Any, reasons: list[str]) -> None:
    assert of_output(old, new) == reasons


def test_recursive_schemas_are_compared_once() -> None:
    names = [f"r{number}" for number in range(12)]
    links = {name: {"$ref": f"#/$defs/{name}"} for name in names}

    def tree(leaf: str) -> dict[str, Any]:
        return {**links["r0"], "$defs": {name: {"properties": {**links, "leaf": {"type": leaf}}} for name in names}}

    reasons = of_input(tree("string"), tree("integer"))
    assert 0 < len(reasons) <= 20
    assert all(reason.endswith("leaf` changed from string to integer") for reason in reasons)


def test_removed_tools_and_lost_audiences_are_breaking() -> None:
    old = manifest(kept=Contract(audiences=["everybody", "gone"]), lost=Contract(audiences=[]))
    found = breaking_changes(old, manifest(kept=Contract(audiences=[])))
    assert [*found] == [
        ("tools.kept", "no longer available to everybody"),
        ("tools.lost", "removed"),
    ]
