"""Integers of more than 64 bits are the numbers that they were written as."""

import json
import re
from types import MappingProxyType

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway import exact_json
from gateway.json_types import Json

EDGES = [2**63 - 1, 2**63, 2**64 - 1, 2**64, -(2**63), -(2**63) - 1, 10**18, 10**19, 10**300]
NUMBERS = st.one_of(
    st.sampled_from(EDGES),
    st.integers(),
    st.integers(min_value=-(10**40), max_value=10**40),
    st.floats(allow_nan=False, allow_infinity=False),
)
TEXTS = st.one_of(st.text(), st.from_regex(r'[0-9"\\]{15,40}', fullmatch=True))
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner),
)


def without_surrogates(value: Json) -> str:
    return json.dumps(value, ensure_ascii=False).encode(errors="replace").decode()


@given(VALUES, st.booleans())
def test_reading_equals_the_standard_library(value: Json, as_bytes: bool) -> None:  # noqa: FBT001 - hypothesis gives it
    text = without_surrogates(value)
    read = exact_json.loads(text.encode() if as_bytes else text)
    assert repr(read) == repr(json.loads(text))


@given(VALUES)
def test_written_json_is_read_unchanged(value: Json) -> None:
    value = json.loads(without_surrogates(value))
    written = exact_json.dumps(value)
    assert repr(json.loads(written)) == repr(value)
    assert repr(exact_json.loads(written)) == repr(value)


@pytest.mark.parametrize(
    "text", ['"18446744073709551617"', "18446744073709551617.0", "1e25", '{"9\\"999999999999999999999":1}']
)
def test_text_and_floats_are_read_unchanged(text: str) -> None:
    assert repr(exact_json.loads(text)) == repr(orjson.loads(text))


def test_mappings_and_tuples_keep_large_integers() -> None:
    value = MappingProxyType({"a": (2**64, [MappingProxyType({"b": -(2**63) - 1})])})
    assert exact_json.dumps(value, default=dict) == b'{"a":[18446744073709551616,[{"b":-9223372036854775809}]]}'


def test_deep_nesting_does_not_crash() -> None:
    deep = b"[" * 1000 + b"18446744073709551617" + b"]" * 1000
    try:
        assert b"18446744073709551617" in exact_json.dumps(exact_json.loads(deep))
    except (orjson.JSONDecodeError, RecursionError, TypeError) as error:
        assert re.search("nested too deeply|recursion", str(error))  # noqa: PT017 - either is right


def test_converted_values_keep_large_integers() -> None:
    assert (
        exact_json.dumps([2**64, {1, 2}], default=lambda _: [2**65]) == b"[18446744073709551616,[36893488147419103232]]"
    )


def test_integer_is_read_up_to_the_digit_limit_of_python() -> None:
    assert exact_json.loads("[" + "9" * 4300 + "]") == [10**4300 - 1]
    with pytest.raises(orjson.JSONDecodeError, match="out of range"):
        exact_json.loads("[" + "9" * 4301 + "]")


@pytest.mark.parametrize("beside", ["1e400", "NaN", '"\ud800"', '"\\ud800"', "01", "1,", "[" * 2000 + "]" * 2000])
def test_too_long_integer_is_invalid_json(beside: str) -> None:
    assert exact_json.loads(f"[{'9' * 400},1]") == [10**400 - 1, 1]
    with pytest.raises(orjson.JSONDecodeError):
        exact_json.loads(f"[{'9' * 400},{beside}]")


@pytest.mark.parametrize("value", [10**5000, -(10**5000), {"a": [10**5000]}], ids=["large", "small", "inside"])
def test_too_long_integer_cannot_be_written(value: Json) -> None:
    with pytest.raises(TypeError, match="4300 digits"):
        exact_json.dumps(value)
