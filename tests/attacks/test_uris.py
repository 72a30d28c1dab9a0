"""Variables of URIs are decoded once, and their values cannot leave their position."""

from typing import Final
from urllib.parse import quote, unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.attacks.client import LEGACY_ACCEPT
from tests.attacks.payloads import SHELL, TEXTS
from tests.attacks.target import Plan, Target

PLAN = Plan(
    file="""
    connections:
      backend: {base_url: "@backend@/items", allow_private: true}
    resources:
      one:
        uri: "one:///{name}"
        text: "<{{ name }}>"
      many:
        uri: "many:///{+path}"
        text: "<{{ path }}>"
      asked:
        uri: "asked://host/x{?a,b}"
        text: "<{{ a }}|{{ b }}>"
      sent:
        uri: "sent:///{id}"
        http: {connection: backend, url: "/{id}/end"}
      told:
        uri: "told:///{id}"
        shell: {command: [printf, '%s', "--", "{{ id }}"]}
    tools:
      sent:
        description: Fetch an item.
        input: {id: string, query: "string?"}
        http: {connection: backend, url: "/{id}{?query}"}
    """
)


SHORT: Final = tuple(text for text in TEXTS if len(text) < 500)
"""The maximum length of URIs in tests. A header field of at most 8 KiB mirrors the URI, encoded twice."""


def read(target: Target, uri: str) -> str | None:
    """Return the text of a resource, or None if it is not found."""
    answer = target.client.modern("resources/read", {"uri": uri}, name=uri)
    if answer.code is not None:
        assert answer.code in {-32602, -32603}, answer
        return None
    return str(answer.json["result"]["contents"][0]["text"])


@given(
    value=st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40) | st.sampled_from(SHELL + SHORT)
)
def test_variable_is_decoded_once(target: Target, value: str) -> None:
    encoded = quote(value, safe="")
    once = read(target, f"one:///{encoded}")
    assert once in {None, f"<{value}>", f"<{visible(value)}>"}
    assert read(target, f"one:///{quote(encoded, safe='')}") in {f"<{encoded}>", None}
    if value.isalnum() and value.isascii():
        assert once == f"<{value}>"


def visible(value: str) -> str:
    """Return a text without control characters."""
    return "".join(
        character for character in value if character in "\t\n" or character.isprintable() or character == " "
    )


@pytest.mark.parametrize(
    "value", ["..", ".", "%2e%2e", "", "a/b", "a%2fb", "a?b", "a#b", "a%00b", "a\\b", "a%0d%0ab", "é", "a b"]
)
def test_value_cannot_leave_its_segment_of_a_sent_url(target: Target, value: str) -> None:
    for uri, tail in ((f"sent:///{value}", "/end"), (f"sent:///{quote(value, safe='')}", "/end")):
        sent = len(target.backend.requests)
        read(target, uri)
        for request in target.backend.requests[sent:]:
            assert_one_segment(request, tail)
    sent = len(target.backend.requests)
    target.client.call("sent", {"id": value})
    for request in target.backend.requests[sent:]:
        assert_one_segment(request, "")
    assert read(target, "sent:///plain") is not None
    assert target.backend.requests[-1].startswith(b"GET /items/plain/end HTTP/1.1\r\n")


def assert_one_segment(request: bytes, tail: str) -> None:
    method, path, version = request.split(b"\r\n", 1)[0].decode().split(" ")
    assert (method, version) == ("GET", "HTTP/1.1")
    assert path.startswith("/items/")
    assert path.endswith(tail)
    segment = path.removeprefix("/items/").removesuffix(tail)
    assert segment
    assert not set("/?#\\") & set(segment)
    assert unquote(segment) not in {".", ".."}


@given(
    value=st.text(st.characters(exclude_categories=["Cs"]), max_size=30) | st.sampled_from(SHELL + TEXTS),
    query=st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
)
def test_value_cannot_leave_its_position_in_a_url(target: Target, value: str, query: str) -> None:
    sent = len(target.backend.requests)
    result = target.client.call("sent", {"id": value, "query": query})
    if result.get("isError"):
        assert len(target.backend.requests) == sent
        return
    target_ = target.backend.requests[-1].split(b" ", 2)[1].decode()
    path, _, rest = target_.partition("?")
    assert unquote(path.removeprefix("/items/")) == value
    assert_one_segment(b"GET %b HTTP/1.1\r\n" % path.encode(), "")
    assert unquote(rest.removeprefix("query=")) == query
    assert not set("&#") & set(rest)


@pytest.mark.parametrize("text", SHELL)
def test_variable_is_one_argument_of_a_command(target: Target, text: str) -> None:
    said = read(target, f"told:///{quote(text, safe='')}")
    assert said in {None, f"--{text}", f"--{visible(text)}"}


def test_subscriptions_over_the_limit_are_rejected(target: Target) -> None:
    wanted = {"notifications": {"resourceSubscriptions": ["one:///a"] * 1001}}
    answer = target.client.modern("subscriptions/listen", wanted, fields=[("Accept", LEGACY_ACCEPT)])
    assert answer.messages[-1]["error"]["code"] == -32602
    with target.client.session("2025-03-26") as session:  # the revision with batches
        for first in range(0, 1000, 100):
            numbers = range(first, first + 100)
            wishes = [("resources/subscribe", {"uri": f"one:///{number}"}) for number in numbers]
            answers = session.ask_together(wishes)
            assert [answer["result"] for answer in answers] == [{}] * 100
        assert session.ask("resources/subscribe", {"uri": "one:///0"})["result"] == {}  # already subscribed
        refused = session.ask("resources/subscribe", {"uri": "one:///more"})["error"]
        assert (refused["code"], refused["message"]) == (-32602, "A session can watch at most 1000 resources")
        assert session.ask("resources/unsubscribe", {"uri": "one:///0"})["result"] == {}
        assert session.ask("resources/subscribe", {"uri": "one:///another"})["result"] == {}
