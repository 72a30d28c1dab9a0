"""URLs of HTTP backends: values cannot change the target."""

from urllib.parse import unquote, urlsplit

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.errors import ExecutionError
from gateway.json_types import Json
from gateway.language.uris.urls import base_url_problem, compile_url
from tests.executors.recording import make_scope, messages_of


def expand(url: str, base_url: str | None = None, /, **values: Json) -> str:
    scope = make_scope({name: {} for name in values})
    compiled = compile_url(url, base_url=base_url, scope=scope)
    assert messages_of(scope) == []
    return compiled.expand(values)


@pytest.mark.parametrize(
    ("url", "base_url", "whole"),
    [
        ("https://h/x", None, "https://h/x"),
        ("HTTPS://h:8443", None, "https://h:8443"),
        ("/x", "https://h/b", "https://h/b/x"),
        ("x", "https://h/b/", "https://h/b/x"),
        ("//x", "https://h/b/", "https://h/b/x"),
        ("", "https://h/b/", "https://h/b/"),
        ("?q=1", "https://h/b", "https://h/b?q=1"),
        ("/x", "https://h/ü", "https://h/%C3%BC/x"),
        ("/x?q=1#".removesuffix("#"), "https://[::1]:80", "https://[::1]:80/x?q=1"),
    ],
)
def test_base_url_and_url_are_concatenated_with_one_slash(url: str, base_url: str | None, whole: str) -> None:
    assert expand(url, base_url) == whole


def test_expression_at_the_start_is_appended_to_the_base_url() -> None:
    assert expand("{/a}", "https://h/b/", a="x") == expand("{a}", "https://h/b", a="x") == "https://h/b/x"


def test_values_are_encoded_in_path_and_query() -> None:
    url = expand("https://h/{a}/{+b}{?c,d*}", a="x/y?z", b="p/q r?", c="&=#", d=["1", "2"])
    assert url == "https://h/x%2Fy%3Fz/p/q%20r%3F?c=%26%3D%23&d=1&d=2"


def test_reserved_expansion_keeps_only_slashes() -> None:
    assert expand("https://h/{+p}", p="a/%2e:@;b") == "https://h/a/%252e%3A%40%3Bb"


def test_missing_input_is_omitted_from_the_query() -> None:
    assert expand("https://h/{?a,b}", a=None, b=1) == "https://h/?b=1"


@pytest.mark.parametrize(
    "value",
    ["..", ".", "%2e%2e", "%2E.", "%252e%252e", "a/../b", "a/..", "..\\a", "a%2f..%2fb", "..;x", "..%3bx", "../../etc"],
)
@pytest.mark.parametrize("url", ["https://h/x/{v}", "https://h/x/{+v}/y", "https://h/x{/v}"])
def test_value_cannot_be_a_relative_segment(url: str, value: str) -> None:
    with pytest.raises(ExecutionError, match="`v` would turn a"):
        expand(url, v=value)


def test_combined_values_cannot_be_a_relative_segment() -> None:
    with pytest.raises(ExecutionError, match="`a`, `b` would turn a"):
        expand("https://h/{a}{b}/x", a=".", b=".")
    with pytest.raises(ExecutionError, match="`a` would turn a"):
        expand("https://h/.{a}/x", a=".")


@pytest.mark.parametrize(
    ("url", "value"),
    [
        ("https://h/x/{v}/y", ""),
        ("https://h/x/{v}", ""),
        ("https://h{/v}", ""),
        ("https://h/{+v}", "/a"),
        ("https://h/{+v}", "a//b"),
        ("https://h/{+v}", "a/"),
        ("https://h/{v}", []),
    ],
)
def test_value_cannot_leave_a_segment_empty(url: str, value: Json) -> None:
    with pytest.raises(ExecutionError, match="`v` would leave a segment of the URL's path empty"):
        expand(url, v=value)


@pytest.mark.parametrize(("value", "reason"), [("", "leave a segment"), ("..", "turn a segment")])
@pytest.mark.parametrize("url", ["https://h/{a}/{v}/{b}", "https://h{/a,b}{/v}/x"])
def test_error_names_the_wrong_input(url: str, value: str, reason: str) -> None:
    with pytest.raises(ExecutionError, match=f"^`v` would {reason}"):
        expand(url, a="1", b="2", v=value)


@pytest.mark.parametrize("value", [".evil/", "@evil/", ":81/", "x"])
@pytest.mark.parametrize("base_url", ["https://h", "https://h:80"])
def test_value_after_an_empty_list_cannot_extend_the_host(base_url: str, value: str) -> None:
    with pytest.raises(ExecutionError, match="would leave a segment of the URL's path empty"):
        expand("{/a*}{+b}", base_url, a=[], b=value)


def test_null_is_rejected_in_the_path() -> None:
    with pytest.raises(ExecutionError, match="`v` must be given: it is part of the URL's path"):
        expand("https://h/a{v}b", v=None)


@pytest.mark.parametrize("value", ["a.b", "a@b", "a:80", "a/b", "", "a%2fb", "[::1]", "a b", 7, None])
def test_value_in_the_host_is_one_label(value: Json) -> None:
    with pytest.raises(ExecutionError, match="`v` must be one label of a host name"):
        expand("https://{v}.example.com/", v=value)


@pytest.mark.parametrize("value", ["a@b", "a:80", "a/b", "", "a..b", ".a", "a?b", "a\\b", "[::1]"])
def test_whole_host_is_a_host_name(value: Json) -> None:
    assert expand("https://{v}:8443/", v="api.example.com") == "https://api.example.com:8443/"
    with pytest.raises(ExecutionError, match="`v` must be a host name"):
        expand("https://{v}:8443/", v=value)


ABSOLUTE = "expected a URL that starts with http:// or https://, or a `connection` next to it"


@pytest.mark.parametrize(
    ("url", "base_url", "message"),
    [
        ("{+id}", None, ABSOLUTE),
        ("{id}://h/", None, ABSOLUTE),
        ("/x", None, ABSOLUTE),
        ("ftp://h/x", None, ABSOLUTE),
        (
            "https://x/",
            "https://h",
            "is an absolute URL, but the connection already has an address. Remove one of them",
        ),
        ("https://h:{id}/", None, "`h:{id}` is not a host, or host:port; expressions can only replace host labels"),
        ("https://h:99999/", None, "`h:99999` is not a host, or host:port; expressions can only replace host labels"),
        ("https://{+id}/", None, "`{+id}` is not allowed in the host. Use {name}"),
        ("https://{id}@h/", None, "cannot contain a user and password. Use `headers: {Authorization: …}`"),
        ("https://u:p@h/", None, "cannot contain a user and password. Use `headers: {Authorization: …}`"),
        ("https://h/#x", None, "cannot have a fragment, because fragments are not sent to servers"),
        ("https://h/{#id}", None, "cannot have a fragment, because fragments are not sent to servers"),
        (
            "https://h/?a=1{?id}",
            None,
            "a query starts with `?` and continues with `&`: write `{&id}` instead of `{?id}`",
        ),
        ("https://h/{&id}", None, "a query starts with `?` and continues with `&`: write `{?id}` instead of `{&id}`"),
        ("https://h/../x", None, "the path contains the segment `..`; write the resolved path"),
        ("https://h/%2E%2e/x", None, "the path contains the segment `%2E%2e`; write the resolved path"),
        ("https://h/{opt}", None, "`opt` is part of the host or path, so it must be required or have a default"),
        ("https://h/{{ id }}", None, "character 11: URLs cannot contain Jinja. Write `{id}` here"),
    ],
)
def test_invalid_url_is_a_load_error(url: str, base_url: str | None, message: str) -> None:
    scope = make_scope({"id": {}, "opt": {}}, optional=["opt"])
    compile_url(url, base_url=base_url, scope=scope)
    assert messages_of(scope) == [message]


@pytest.mark.parametrize(
    ("base_url", "problem"),
    [
        ("https://h/a/b", None),
        ("https://h/{x}", "cannot contain expressions. Put them into the `url` that uses the connection"),
        (
            "https://h?x=1",
            "cannot have a query or a fragment. Use the connection's `query`, which is added to each request",
        ),
        ("h/x", "expected a URL that starts with http:// or https://"),
        ("https://h/a b", "character 12: ` ` is not allowed in a URI. Write %20"),
        ("https://u:p@h/", "cannot contain a user and password. Use `headers: {Authorization: …}`"),
    ],
)
def test_base_url_is_validated(base_url: str, problem: str | None) -> None:
    assert base_url_problem(base_url) == problem


@given(value=st.text())
@example("%2e%2e%2f")
@example("x/../../y")
@example("\\..\\")
def test_values_cannot_change_other_parts_of_a_url(value: str) -> None:
    for url, depth in (("https://h/a/{v}/b?q=1", 4), ("https://h/a/{+v}/b", None)):
        try:
            parts = urlsplit(expand(url, v=value))
        except ExecutionError:
            continue
        assert parts.netloc == "h"
        assert parts.fragment == ""
        assert parts.query in {"q=1", ""}
        segments = parts.path.split("/")
        assert (segments[1], segments[-1]) == ("a", "b")
        assert depth is None or len(segments) == depth
        assert not {".", "..", ""}.intersection(segments[1:])
        assert unquote(parts.path) == f"/a/{value}/b"
