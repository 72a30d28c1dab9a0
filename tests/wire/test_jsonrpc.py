"""Tests for decoding JSON-RPC messages."""

import contextlib

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import ErrorCode, RpcError
from gateway.wire import jsonrpc
from gateway.wire.jsonrpc import InvalidMessageError, Notification, Request, Response

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda children: st.lists(children) | st.dictionaries(st.text(), children),
    max_leaves=20,
)


def decode(body: bytes, max_depth: int = 64) -> jsonrpc.Message:
    return jsonrpc.decode(body, max_depth=max_depth)


def refusal(body: bytes, max_depth: int = 64) -> InvalidMessageError:
    with pytest.raises(InvalidMessageError) as caught:
        decode(body, max_depth)
    return caught.value


def test_message_kinds_are_distinguished() -> None:
    assert decode(b'{"jsonrpc":"2.0","id":1,"method":"m"}') == Request(1, "m", {})
    assert decode(b'{"jsonrpc":"2.0","method":"m","params":{"a":1}}') == Notification("m", {"a": 1})
    assert decode(b'{"jsonrpc":"2.0","id":"x","result":{}}') == Response("x", {}, None)
    assert decode(b'{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":"m"}}') == Response(
        None, None, {"code": 1, "message": "m"}
    )


@pytest.mark.parametrize("text", [b"\\ud83d", b"\\ude00", b"\\ude00\\ud83d", b"\xf0\x9f\x98", b"\xed\xa0\xbd", b"\xe9"])
def test_error_for_invalid_unicode_has_the_request_id(text: bytes) -> None:
    params = b'{"a":["%b"],"b":{"%b":1}}' % (text, text)
    for request_id in (7, "x"):
        error = refusal(b'{"jsonrpc":"2.0","id":%b,"method":"m","params":%b}' % (orjson.dumps(request_id), params))
        assert (error.code, error.request_id) == (ErrorCode.PARSE_ERROR, request_id)
    # Without an exact id, or not a request.
    assert refusal(b'{"jsonrpc":"2.0","id":"%b","method":"m"}' % text).request_id is None
    assert refusal(b'{"jsonrpc":"2.0","id":1,"result":"%b"}' % text).request_id is None


@pytest.mark.parametrize(
    "body",
    [
        b"3",
        b'"text"',
        b"null",
        b"{}",
        b'{"jsonrpc":"1.0","id":1,"method":"m"}',
        b'{"jsonrpc":"2.0","id":null,"method":"m"}',
        b'{"jsonrpc":"2.0","id":1.5,"method":"m"}',
        b'{"jsonrpc":"2.0","id":true,"method":"m"}',
        b'{"jsonrpc":"2.0","id":{},"method":"m"}',
        b'{"jsonrpc":"2.0","id":1,"method":7}',
        b'{"jsonrpc":"2.0","id":1}',
        b'{"jsonrpc":"2.0","id":1,"result":{},"error":{}}',
    ],
)
def test_json_that_is_not_a_message_is_an_invalid_request(body: bytes) -> None:
    assert refusal(body).code == ErrorCode.INVALID_REQUEST


def test_brackets_inside_strings_are_not_nesting() -> None:
    body = orjson.dumps({"jsonrpc": "2.0", "method": "m", "params": {"text": "[{" * 500}})
    assert isinstance(decode(body), Notification)


@given(request_id=st.text() | st.integers(-(2**53), 2**53), result=JSON)
def test_spliced_result_is_valid_json(request_id: str | int, result: object) -> None:
    spliced = orjson.loads(jsonrpc.encode_result(request_id, orjson.dumps(result)))
    assert spliced == {"jsonrpc": "2.0", "id": request_id, "result": result}


@given(st.binary(max_size=200) | JSON.map(orjson.dumps))
def test_any_bytes_decode_or_raise(body: bytes) -> None:
    with contextlib.suppress(InvalidMessageError):
        decode(body)


def test_empty_list_is_an_empty_object_parameter() -> None:
    assert jsonrpc.object_param({"arguments": []}, "arguments") == {}
    with pytest.raises(RpcError):
        jsonrpc.object_param({"arguments": [1]}, "arguments")
