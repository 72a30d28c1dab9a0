"""Tests for headers that mirror a modern request."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import RpcError
from gateway.wire.headers import HeaderParameter, check_name, check_parameters


def sentinel(text: str) -> str:
    return f"=?base64?{base64.b64encode(text.encode()).decode()}?="


@pytest.mark.parametrize("given", ["ü", sentinel("ü")])
def test_name_header_is_compared_after_decoding(given: str) -> None:
    check_name("tools/call", {"name": "ü"}, {"mcp-name": given})


def test_name_header_of_resources_is_the_uri() -> None:
    check_name("resources/read", {"uri": "a:///b"}, {"mcp-name": "a:///b"})
    check_name("tools/list", {}, {"mcp-name": "ignored"})


def test_large_integers_of_parameters_are_compared_exactly() -> None:
    region = (HeaderParameter(name="Region", path=("region",)),)
    check_parameters(region, {"region": 2**64 + 1}, {"mcp-param-region": str(2**64 + 1)})
    with pytest.raises(RpcError):
        check_parameters(region, {"region": 2**64 + 1}, {"mcp-param-region": str(2**64)})


@given(st.text())
def test_text_survives_the_base64_form(text: str) -> None:
    check_name("tools/call", {"name": text}, {"mcp-name": sentinel(text)})
