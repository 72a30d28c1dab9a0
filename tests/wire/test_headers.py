"""Tests for headers that mirror a modern request."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import ErrorCode, RpcError
from gateway.json_types import Json
from gateway.wire.headers import HeaderParameter, check_method, check_name, check_parameters

REGION = (HeaderParameter(name="Region", path=("place", "region")),)


def sentinel(text: str) -> str:
    return f"=?base64?{base64.b64encode(text.encode()).decode()}?="


def test_method_header_must_match_exactly() -> None:
    check_method("tools/list", {"mcp-method": "tools/list"})
    for headers in ({}, {"mcp-method": "Tools/List"}, {"mcp-method": "tools/call"}):
        with pytest.raises(RpcError) as caught:
            check_method("tools/list", headers)
        assert caught.value.code == ErrorCode.HEADER_MISMATCH


@pytest.mark.parametrize("given", ["ü", sentinel("ü")])
def test_name_header_is_compared_after_decoding(given: str) -> None:
    check_name("tools/call", {"name": "ü"}, {"mcp-name": given})


@pytest.mark.parametrize(
    "given", [None, "other", "=?base64?w7w?=", "=?base64?w7x=?=", "=?base64?!!!!?=", "=?BASE64?w7w=?=", sentinel("v")]
)
def test_missing_malformed_or_different_name_is_rejected(given: str | None) -> None:
    with pytest.raises(RpcError) as caught:
        check_name("tools/call", {"name": "ü"}, {} if given is None else {"mcp-name": given})
    assert caught.value.code == ErrorCode.HEADER_MISMATCH


def test_name_header_of_resources_is_the_uri() -> None:
    check_name("resources/read", {"uri": "a:///b"}, {"mcp-name": "a:///b"})
    check_name("tools/list", {}, {"mcp-name": "ignored"})


@pytest.mark.parametrize(
    ("value", "field"),
    [
        ("eu", "eu"),
        ("eu", sentinel("eu")),
        (42, "42"),
        (42, "42.0"),
        (2**64 + 1, str(2**64 + 1)),
        (True, "true"),
        ("=?base64?", "=?base64?"),
    ],
)
def test_equal_parameter_header_is_accepted(value: Json, field: str) -> None:
    check_parameters(REGION, {"place": {"region": value}}, {"mcp-param-region": field})


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({"place": {"region": "eu"}}, None),
        ({"place": {"region": "eu"}}, "us"),
        ({"place": {"region": None}}, "eu"),
        ({}, "eu"),
        ({"place": "eu"}, "eu"),
        ({"place": {"region": 42}}, "forty-two"),
        ({"place": {"region": 42}}, "nan"),
        ({"place": {"region": 2**64 + 1}}, str(2**64)),
        ({"place": {"region": 10}}, "1_0"),
        ({"place": {"region": 10}}, sentinel("\u0661\u0660")),
        ({"place": {"region": 1}}, "true"),
        ({"place": {"region": 1}}, "\udcff"),
        ({"place": {"region": True}}, "True"),
    ],
)
def test_different_parameter_header_is_rejected(arguments: dict[str, Json], field: str | None) -> None:
    with pytest.raises(RpcError) as caught:
        check_parameters(REGION, arguments, {} if field is None else {"mcp-param-region": field})
    assert caught.value.code == ErrorCode.HEADER_MISMATCH


def test_absent_parameter_needs_no_header() -> None:
    check_parameters(REGION, {}, {})
    check_parameters(REGION, {"place": {"region": None}}, {"mcp-param-other": "x"})


@given(st.text())
def test_text_survives_the_base64_form(text: str) -> None:
    check_name("tools/call", {"name": text}, {"mcp-name": sentinel(text)})
