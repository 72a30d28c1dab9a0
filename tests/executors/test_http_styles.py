"""Styles of query fields, header fields and cookies."""

from collections.abc import Mapping

import pytest

from gateway.config.models.backends import Connection, Http
from gateway.errors import ExecutionError
from gateway.executors.http.request import compile_request
from gateway.json_types import Json
from gateway.net.request import Request
from tests.executors.recording import make_invocation, make_scope, messages_of

COLOURS: Json = ["blue", "bl ack", "a,b"]
RGB: Json = {"R": 100, "G": "2 0", "none": None}


def request(field: str, written: Json, arguments: Mapping[str, Json], **fields: Json) -> Request:
    config = Http.model_validate({"url": "https://a.example/x", field: written, **fields})
    scope = make_scope({"v": {}, "w": {}}, optional=("v", "w"))
    template = compile_request(config, None, scope=scope, connection_scope=scope)
    assert messages_of(scope) == []
    return template.render(make_invocation(dict(arguments)))


QUERIES = [
    ({}, "blue", "c=blue"),
    ({}, True, "c=true"),
    ({}, COLOURS, "c=blue&c=bl%20ack&c=a%2Cb"),
    ({"explode": False}, COLOURS, "c=blue,bl%20ack,a%2Cb"),
    ({}, [], ""),
    # RFC 6570 §2.3: undefined, as a list without members is.
    ({}, {}, ""),
    ({"explode": False}, {}, ""),
    ({"explode": False}, {"none": None}, ""),
    ({"style": "pipeDelimited"}, {}, ""),
    ({"style": "deepObject"}, {"a": {}}, ""),
    ({}, RGB, "R=100&G=2%200"),
    ({"explode": False}, RGB, "c=R,100,G,2%200"),
    ({"style": "spaceDelimited"}, ["a", "b,c"], "c=a%20b%2Cc"),
    ({"style": "spaceDelimited"}, {"R": 1, "G": 2}, "c=R%201%20G%202"),
    ({"style": "pipeDelimited"}, ["a", "b c"], "c=a%7Cb%20c"),
    ({"style": "pipeDelimited", "explode": True}, ["a", "b"], "c=a&c=b"),
    (
        {"style": "deepObject"},
        {"a": 1, "b": {"x": ["p", "q"]}},
        "c%5Ba%5D=1&c%5Bb%5D%5Bx%5D%5B0%5D=p&c%5Bb%5D%5Bx%5D%5B1%5D=q",
    ),
    ({"allow_reserved": True}, "a/b?c:d&e=f#g+h%20", "c=a/b?c:d%26e%3Df%23g%2Bh%2520"),
]


@pytest.mark.parametrize(("style", "value", "query"), QUERIES)
async def test_query_field_has_its_style(style: dict[str, Json], value: Json, query: str) -> None:
    sent = request("query", {"c": {"value": "{{ v }}", **style}}, {"v": value})
    assert sent.url.raw_query_string == query


async def test_field_without_a_value_is_omitted() -> None:
    sent = request("query", {"c": {"value": "{{ v }}"}, "d": "{{ w }}", "e": "1"}, {})
    assert sent.url.raw_query_string == "e=1"


@pytest.mark.parametrize(
    ("style", "value", "expected"),
    [({}, ["a", "b"], "a,b"), ({}, RGB, "R,100,G,2 0"), ({"explode": True}, RGB, "R=100,G=2 0"), ({}, 5, "5")],
)
async def test_header_field_has_the_simple_style(style: dict[str, Json], value: Json, expected: str) -> None:
    sent = request("headers", {"X-C": {"value": "{{ v }}", **style}}, {"v": value})
    assert [(each.name, each.value) for each in sent.headers] == [("X-C", expected)]


@pytest.mark.parametrize("value", [[], {}, {"none": None}])
async def test_empty_values_are_not_sent_as_header_or_cookie(value: Json) -> None:
    assert request("headers", {"X-C": {"value": "{{ v }}", "explode": True}}, {"v": value}).headers == ()
    assert request("cookies", {"c": {"value": "{{ v }}", "explode": False}}, {"v": value}).headers == ()


async def test_cookies_are_one_header_field_without_separators_in_values() -> None:
    written = {"a": "{{ v }}", "b": {"value": "{{ w }}", "explode": False}}
    sent = request("cookies", written, {"v": "x; admin=1", "w": ["p", "q\r\n"]})
    (cookie,) = sent.headers
    assert (cookie.name, cookie.value, cookie.is_bound) == ("Cookie", "a=x%3B%20admin=1; b=p,q%0D%0A", True)


async def test_cookies_whose_names_differ_in_case_are_two() -> None:
    (cookie,) = request("cookies", {"SID": "1", "sid": "2"}, {}).headers
    assert cookie.value == "SID=1; sid=2"


async def test_cookies_are_added_to_those_of_the_connection() -> None:
    connection = Connection.model_validate({"base_url": "https://a.example", "headers": {"Cookie": "session=1"}})
    config = Http.model_validate({"connection": "a", "url": "/", "cookies": {"theme": "dark"}})
    template = compile_request(config, connection, scope=make_scope({}), connection_scope=make_scope({}))
    (cookie,) = template.render(make_invocation({})).headers
    assert cookie.value == "session=1; theme=dark"


HOSTILE = [
    ("query", {"c": {"value": "{{ v }}"}, "admin": "no"}, {"admin": "yes"}),
    ("query", {"c": {"value": "{{ v }}", "style": "deepObject"}}, {"a][admin": "yes"}),
    ("query", {"c": {"value": "{{ v }}", "style": "pipeDelimited"}}, ["a|b"]),
    ("query", {"c": {"value": "{{ v }}", "style": "spaceDelimited"}}, ["a b"]),
    ("headers", {"X-C": {"value": "{{ v }}"}}, ["a,b"]),
    ("headers", {"X-C": {"value": "{{ v }}", "explode": True}}, {"a": "1,admin=1"}),
    ("headers", {"X-C": {"value": "{{ v }}"}}, ["a\r\nX-Admin: 1"]),
    ("cookies", {"c": {"value": "{{ v }}", "explode": True}, "session": "1"}, {"session": "2"}),
]


@pytest.mark.parametrize(("field", "written", "value"), HOSTILE)
async def test_value_with_a_delimiter_is_rejected(field: str, written: Json, value: Json) -> None:
    request(field, written, {"v": {"a": "b"} if isinstance(value, dict) else ["a"]})  # the control
    with pytest.raises(ExecutionError):
        request(field, written, {"v": value})


async def test_member_cannot_repeat_a_field_of_the_url() -> None:
    with pytest.raises(ExecutionError, match="has a field with that name"):
        request("query", {"c": {"value": "{{ v }}"}}, {"v": {"key": "other"}}, url="https://a.example/x?key=ours")


@pytest.mark.parametrize(
    ("place", "style", "message"),
    [
        ("headers", "form", "the style `form` is not supported in a header"),
        ("query", "simple", "the style `simple` is not supported in a query or"),
    ],
)
async def test_style_of_another_location_is_an_error(place: str, style: str, message: str) -> None:
    config = Http.model_validate({"url": "https://a.example", place: {"c": {"value": "x", "style": style}}})
    scope = make_scope({})
    compile_request(config, None, scope=scope, connection_scope=scope)
    assert [each for each in messages_of(scope) if message in each]


async def test_cookie_name_must_be_a_token() -> None:
    config, scope = Http.model_validate({"url": "https://a.example", "cookies": {"a b": "x"}}), make_scope({})
    compile_request(config, None, scope=scope, connection_scope=scope)
    assert messages_of(scope) == ["cookies.a b: `a b` is not a valid cookie name"]


@pytest.mark.parametrize(
    ("kind", "written"), [("json", {"a": "{{ v }}"}), ("form", {"a": "{{ v }}"}), ("body", "{{ v }}")]
)
async def test_optional_body_without_members_is_not_sent(kind: str, written: Json) -> None:
    empty = request(kind, written, {}, optional_body=True)
    assert (empty.body, empty.headers) == (None, ())
    assert request(kind, written, {"v": "1"}, optional_body=True).body
