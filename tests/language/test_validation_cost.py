"""Limits for the cost of validation: patterns, comparisons and recursion."""

import subprocess
import sys
from typing import Final

import pytest

from gateway.json_types import Json, JsonObject
from gateway.language.schemas.json_schema import schema_problem_in, validation_errors
from gateway.language.schemas.validation_cost import (
    MAX_DIVIDED,
    MAX_FAN_OUT,
    MAX_LARGE_INTEGERS,
    MAX_MATCHED_LENGTH,
    MAX_MATCHES,
    is_costly,
    repetitions,
)

INTRICATE: Final = r"^(?!.*\.\.)[a-z./]+$"
"""A look-ahead, which linear-time engines do not support."""


def error_messages(schema: JsonObject, instance: Json) -> str:
    return "; ".join(map(str, validation_errors(schema, instance)))


@pytest.mark.parametrize(
    ("pattern", "times"),
    [
        ("abc", 1),
        ("a{3}", 3),
        ("a{2,7}b{5}", 7),
        ("(a{1,100}){1,100}", 10_000),
        ("(?:(a{2}){3}|b{4}){5}", 30),
        (r"\w{1000}{1000}", 1_000_000),
        ("a{20,}", 20),
        (r"\p{L}{1,64}", 64),
        (r"[{}(]{9}\{5\}\({4}", 9),
        ("(a|b)*{3}", 3),
        ("a{x}", 1),
        (f"a{{{'9' * 5000}}}", 10**9),
        ("a" + "{9999}" * 5000, 10**9),
    ],
)
def test_nested_repetitions_multiply(pattern: str, times: int) -> None:
    assert repetitions(pattern) == times


OPEN_ENDED: Final = """
from gateway.language.schemas.validation_cost import repetitions
for start in ("[", chr(92) + "p{", "(", "{1", "[^", "[" + chr(92)):
    for end in ("", chr(92), chr(92) + chr(10), "]"):
        print(repetitions(start * 100_000 + end))
"""


def test_repetitions_are_counted_in_linear_time() -> None:
    """A hundred thousand brackets once blocked the daemon for ten minutes."""
    done = subprocess.run([sys.executable, "-c", OPEN_ENDED], capture_output=True, text=True, timeout=30, check=True)
    assert done.stdout.split() == ["1"] * 24


@pytest.mark.parametrize("pattern", ["(a{1,100}){1,100}b", "((a{0,50}){0,50}){0,50}", r"\w{1000}{1000}"])
def test_pattern_with_too_many_states_is_rejected(pattern: str) -> None:
    schema_problem = schema_problem_in({"type": "string", "pattern": pattern})
    assert schema_problem is not None
    assert "use `maxLength`" in schema_problem


@pytest.mark.parametrize(
    "pattern",
    [
        r"^[a-z0-9-]{1,63}$",
        r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$",
        r"^([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z]{2,63}$",
        r"^(https?://)?([\w-]+\.)+[\w-]+(/[\w\- ./?%&=]*)?$",
        "^(a+)+$",
        "(x+x+)+y",
    ],
)
def test_linear_patterns_match_long_texts(pattern: str) -> None:
    assert not is_costly(pattern)
    assert "must match the pattern" in error_messages({"type": "string", "pattern": pattern}, "a-" * 1_000_000 + "!")


@pytest.mark.parametrize("pattern", [INTRICATE, r"(a+)+\1$", "(?<=a+)b", "a[ab]{900}c"])
def test_expensive_patterns_only_match_short_texts(pattern: str) -> None:
    schema = {"type": "string", "pattern": pattern}
    assert is_costly(pattern)
    assert error_messages(schema, "a" * (MAX_MATCHED_LENGTH + 1)) == (
        f"must have at most {MAX_MATCHED_LENGTH} characters, had {MAX_MATCHED_LENGTH + 1}"
    )
    assert "characters" not in error_messages(schema, "a" * MAX_MATCHED_LENGTH)


@pytest.mark.parametrize(
    "pattern",
    ["^(?=(a+)+b)a*$", r"^(?:(a+)+)\1$", r"(?:(?=.*a)(?=.*b).)*c", r"(?=(\w+\s?)*$)x", "(?!(a|aa)+c)(a|aa)+d"],
)
@pytest.mark.parametrize(
    "text", ["a" * 30 + "!", "a" * (MAX_MATCHED_LENGTH - 1) + "!", "ab" * (MAX_MATCHED_LENGTH // 2), "a" * 4_000_000]
)
def test_catastrophic_patterns_end(pattern: str, text: str) -> None:
    assert error_messages({"type": "string", "pattern": pattern}, text)


def test_guard_keeps_the_meaning_of_a_pattern() -> None:
    schema = {"type": ["string", "integer"], "pattern": INTRICATE, "allOf": [{"minLength": 2}]}
    assert error_messages(schema, "a/b") == error_messages(schema, 7) == ""
    assert error_messages(schema, "a..b") == f'must match the pattern {INTRICATE}, was "a..b"'
    assert error_messages(schema, "a") == 'must have at least 2 characters, was "a"'


def test_large_text_without_a_pattern_is_accepted() -> None:
    path = {"type": "string", "pattern": INTRICATE}
    schema = {"type": "object", "properties": {"path": path, "content": {"type": "string"}, "lines": {"type": "array"}}}
    assert error_messages(schema, {"path": "a/b", "content": "x" * 3_000_000, "lines": ["x" * 100] * 30_000}) == ""


def test_total_text_for_expensive_patterns_is_limited() -> None:
    schema = {"type": "array", "items": {"type": "string", "pattern": INTRICATE}}
    assert error_messages(schema, ["a" * 1024] * (MAX_MATCHES // 1024)) == ""
    assert "too many for the patterns" in error_messages(schema, ["a" * 1024] * (MAX_MATCHES // 1024 + 1))
    tree = {"type": "object", "properties": {"name": {"pattern": INTRICATE}, "next": {"$ref": "#"}}}
    value: Json = {}
    for _ in range(40):
        value = {"name": "a" * 1024, "next": value}
    assert "too many for the patterns" in error_messages(tree, value)


def test_large_integers_in_unique_items_are_limited() -> None:
    schema = {"type": "array", "uniqueItems": True}
    assert error_messages(schema, list(range(100_000))) == ""
    assert "must not contain duplicate items" in error_messages(schema, [1, 1.0])
    assert error_messages(schema, [2**63 + number for number in range(MAX_LARGE_INTEGERS)]) == ""
    assert "too many for `uniqueItems`" in error_messages(schema, [[2**63 + number] for number in range(100_000)])


def test_numbers_with_multiple_of_are_limited() -> None:
    schema = {"type": "array", "items": {"multipleOf": 0.01}}
    assert error_messages(schema, [0.25] * MAX_DIVIDED) == ""
    assert "`multipleOf`" in error_messages(schema, [1.1e300] * (MAX_DIVIDED + 1))


def test_member_names_with_patterns_are_limited() -> None:
    schema = {"type": "object", "patternProperties": {f"^a{number}": {} for number in range(100)}}
    assert error_messages(schema, {f"a{number}": 1 for number in range(1000)}) == ""
    assert "`patternProperties`" in error_messages(schema, {f"a{number}": 1 for number in range(20_000)})
    assert "too expensive" in str(schema_problem_in({"patternProperties": {INTRICATE: {}}}))


def test_exponential_references_are_rejected() -> None:
    laughs: dict[str, Json] = {"l0": {"type": "string"}}
    for number in range(1, 30):
        laughs[f"l{number}"] = {"allOf": [{"$ref": f"#/$defs/l{number - 1}"}] * 2}
    schema_problem = schema_problem_in(
        {"$defs": laughs, "type": "object", "properties": {"a": {"$ref": "#/$defs/l29"}}}
    )
    assert schema_problem is not None
    assert f"at most {MAX_FAN_OUT} are allowed" in schema_problem
    few = {name: laughs[name] for name in ("l0", "l1", "l2", "l3")}
    assert schema_problem_in({"$defs": few, "type": "object", "properties": {"a": {"$ref": "#/$defs/l3"}}}) is None


def test_schema_that_only_refers_to_itself_is_accepted() -> None:
    for loop in ({"$ref": "#"}, {"allOf": [{"$ref": "#"}]}, {"anyOf": [{"$ref": "#"}, {"type": "string"}]}):
        assert schema_problem_in(loop) is None
        validation_errors(loop, {"a": 1})


EXPRESSION: Final[JsonObject] = {
    "$defs": {
        "node": {
            "anyOf": [
                *(
                    {
                        "properties": {"kind": {"const": kind}, "args": {"items": {"$ref": "#/$defs/node"}}},
                        "required": ["kind", "args"],
                    }
                    for kind in ("and", "or", "not")
                ),
                {"properties": {"kind": {"const": "leaf"}}, "required": ["kind"]},
            ]
        }
    },
    "type": "object",
    "$ref": "#/$defs/node",
}


@pytest.mark.parametrize("depth", [1, 5, 30])
def test_recursive_alternatives_are_validated_at_any_depth(depth: int) -> None:
    right: Json = {"kind": "leaf"}
    wrong: Json = {"kind": "leave"}
    for _ in range(depth):
        right, wrong = {"kind": "not", "args": [right]}, {"kind": "not", "args": [wrong]}
    assert error_messages(EXPRESSION, right) == ""
    assert error_messages(EXPRESSION, wrong)


def test_errors_near_the_root_of_a_tree_are_reported() -> None:
    assert "/args is required" in error_messages(EXPRESSION, {"kind": "and"})
