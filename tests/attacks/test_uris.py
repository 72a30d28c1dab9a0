"""URIs from callers are decoded once, and never lead to files outside the roots."""

import os
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
      docs: {files: "docs/**/*.md"}
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
      sent_path:
        uri: "path:///{+path}"
        http: {connection: backend, url: "/{+path}"}
      told:
        uri: "told:///{id}"
        shell: {command: [printf, '%s', "--", "{{ id }}"]}
    tools:
      sent:
        description: Fetch an item.
        input: {id: string, query: "string?"}
        http: {connection: backend, url: "/{id}{?query}"}
    """,
    files={
        "docs/a.md": "inside",
        "docs/sub/b.md": "inside too",
        "docs/my file.md": "with a space",
        "docs/ü.md": "beyond ASCII",
        "docs/50%.md": "with a percent sign",
        "docs/a%2fb.md": "looks encoded",
        "docs/.hidden.md": "hidden canary",
        "docs/.git/config.md": "hidden canary",
        "docs/a.txt": "does not match the glob",
        "secret.md": "next to the root",
    },
)


@pytest.fixture(scope="module", autouse=True)
def _traps(daemon: Target) -> None:
    """Create links, pipes and directories below the root while it is served."""
    docs = daemon.folder / "docs"
    (docs / "link.md").symlink_to(daemon.canary.file)
    (docs / "up").symlink_to("..")
    (docs / "out").symlink_to(daemon.canary.file.parent)
    (docs / "loop.md").symlink_to("loop.md")
    (docs / "folder.md").mkdir()
    os.mkfifo(docs / "pipe.md")
    daemon.client.request("POST", "/-/reload")


SHORT: Final = tuple(text for text in TEXTS if len(text) < 500)
"""The maximum length of URIs in tests. A header field of at most 8 KiB mirrors the URI, encoded twice."""


def read(target: Target, uri: str) -> str | None:
    """Return the text of a resource, or None if it is not found."""
    answer = target.client.modern("resources/read", {"uri": uri}, name=uri)
    if answer.code is not None:
        assert answer.code in {-32602, -32603}, answer
        return None
    return str(answer.json["result"]["contents"][0]["text"])


OUTSIDE: Final = (
    "docs:///../secret.md",
    "docs:///sub/../../secret.md",
    "docs:///./../secret.md",
    "docs:///sub/../a.md",
    "docs:///./a.md",
    "docs:////a.md",
    "docs:///sub//b.md",
    "docs:///%2e%2e/secret.md",
    "docs:///%2E%2e%2Fsecret.md",
    "docs:///..%2fsecret.md",
    "docs:///..%5csecret.md",
    "docs:///..\\secret.md",
    "docs:///%252e%252e%252fsecret.md",
    "docs:///%c0%ae%c0%ae/secret.md",
    "docs:///%u002e%u002e/secret.md",
    "docs:///..;/secret.md",
    "docs:///.../secret.md",
    "docs:///a.md/../../secret.md",
    "docs:///a.md%00.txt",
    "docs:///a.md\0",
    "docs:///a.md/",
    "docs:///a.md?",
    "docs:///a.md#",
    "docs:///a.md%20",
    "docs:///A.md",
    "docs:///a.txt",
    "docs:///a",
    "docs:///sub",
    "docs:///sub/",
    "docs:///",
    "docs://",
    "docs:",
    "docs:/a.md",
    "docs://a.md",
    "docs://localhost/a.md",
    "docs://@/a.md",
    "docs:a.md",
    "DOCS:///a.md",
    "file:///a.md",
    "/a.md",
    "a.md",
    "",
    " docs:///a.md",
    "docs:///a.md ",
    "docs:///a.md\n",
    "docs:///.hidden.md",
    "docs:///.git/config.md",
    "docs:///%2ehidden.md",
    "docs:///link.md",
    "docs:///up/secret.md",
    "docs:///out/canary.txt",
    "docs:///out/canary.txt.md",
    "docs:///loop.md",
    "docs:///folder.md",
    "docs:///pipe.md",
    "docs:///%2fetc%2fpasswd",
    "docs:////etc/passwd",
    "docs:///~/a.md",
    "docs:///*.md",
    "docs:///**/b.md",
    "docs:///{+path}",
    "docs:///%",
    "docs:///%zz",
    "docs:///%ff.md",
    "docs:///" + "a/" * 5000 + "a.md",
    "docs:///" + "a" * 300 + ".md",
    "docs:///" + "a" * 100_000 + ".md",
    "docs:///" + "../" * 20_000 + "etc/passwd",
    "docs:///" + "%2e%2e%2f" * 20_000 + "etc/passwd",
)


@pytest.mark.parametrize("uri", OUTSIDE, ids=lambda uri: str(uri)[:40])
def test_uri_only_reads_files_that_match_the_glob(target: Target, uri: str) -> None:
    if len(uri) < 4000:  # longer URIs do not fit into the header field
        assert read(target, uri) is None
    with target.client.session() as session:
        assert "error" in session.ask("resources/read", {"uri": uri})
        session.ask("resources/subscribe", {"uri": uri})  # any URI that matches a template can be subscribed to


INSIDE: Final = {
    "docs:///a.md": "inside",
    "docs:///sub/b.md": "inside too",
    "docs:///sub%2Fb.md": "inside too",
    "docs:///%61.md": "inside",
    "docs:///my%20file.md": "with a space",
    "docs:///%C3%BC.md": "beyond ASCII",
    "docs:///50%25.md": "with a percent sign",
    "docs:///a%252fb.md": "looks encoded",
}


@pytest.mark.parametrize(("uri", "text"), INSIDE.items())
def test_matching_file_is_read_in_any_encoding_of_its_uri(target: Target, uri: str, text: str) -> None:
    assert read(target, uri) == text


def test_listed_files_are_the_readable_ones(target: Target) -> None:
    listed = target.client.modern("resources/list").json["result"]["resources"]
    uris = [entry["uri"] for entry in listed]
    assert sorted(uris) == sorted({uri for uri in INSIDE if "%61" not in uri and "sub%2F" not in uri})
    assert all(read(target, uri) for uri in uris)


@given(
    segments=st.lists(
        st.sampled_from(["..", ".", "", "%2e%2e", "%2E.", ".%2e", "%252e%252e", "sub", "up", "out", "docs", "a.md"])
        | st.sampled_from(
            ["secret.md", "link.md", "canary.txt", "b.md", "%00", "%2f", "%5c", "\\", "…", "．．", "%c0%af"]
        ),
        min_size=1,
        max_size=7,
    ),
    separator=st.sampled_from(["/", "%2f", "%2F", "//", "\\", "%5c"]),
)
def test_generated_paths_cannot_leave_the_directory(target: Target, segments: list[str], separator: str) -> None:
    text = read(target, "docs:///" + separator.join(segments))
    assert text in {None, *INSIDE.values()}


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


@pytest.mark.parametrize(
    "path", ["../x", "a/../../x", "%2e%2e/x", "a/%2e%2e/x", "./x", "a//x", "a/%2E%2e%2fx", "..%2fx", "a\\..\\x"]
)
def test_path_has_no_parent_traversal(target: Target, path: str) -> None:
    sent = len(target.backend.requests)
    read(target, f"path:///{path}")
    for request in target.backend.requests[sent:]:
        sent_path = request.split(b" ", 2)[1].decode()
        assert sent_path.startswith("/items/")
        assert not {".", "..", ""} & set(unquote(sent_path).removeprefix("/items/").split("/"))
    assert read(target, "path:///a/b/c") is not None
    assert target.backend.requests[-1].startswith(b"GET /items/a/b/c HTTP/1.1\r\n")


@pytest.mark.parametrize("text", SHELL)
def test_variable_is_one_argument_of_a_command(target: Target, text: str) -> None:
    said = read(target, f"told:///{quote(text, safe='')}")
    assert said in {None, f"--{text}", f"--{visible(text)}"}


def test_subscriptions_over_the_limit_are_rejected(target: Target) -> None:
    wanted = {"notifications": {"resourceSubscriptions": ["docs:///a.md"] * 1001}}
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
        assert session.ask("resources/subscribe", {"uri": "docs:///a.md"})["result"] == {}
