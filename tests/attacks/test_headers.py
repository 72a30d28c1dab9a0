"""Header fields cannot be split, and do not override the body or the peer's address."""

import base64
from typing import Final

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.attacks.client import LEGACY_ACCEPT, Answer, Fields, initialize
from tests.attacks.payloads import TEXTS
from tests.attacks.seeds import SECRETS
from tests.attacks.target import Plan, Target
from tests.e2e.daemon import call
from tests.messages import MODERN, modern_request

PLAN = Plan(
    file="""
    connections:
      backend: {base_url: "@backend@", allow_private: true}
    tools:
      echo:
        description: Repeat a text.
        input: {text: string}
        content: [{text: "{{ text }}"}]
      send:
        description: Send a text in a header field.
        input: {text: string}
        http:
          connection: backend
          url: /
          headers: {X-Text: "{{ text }}", X-Around: "<{{ text }}>", X-After: "after"}
      forward:
        description: Forward a header field of the caller.
        http: {connection: backend, url: /, forward_headers: [X-Trace]}
    prompts:
      grüße: {description: A name beyond ASCII., messages: [{user: found}]}
    """
)

BREAKS: Final = (
    "\r\nX-Injected: yes",
    "\nX-Injected: yes",
    "\rX-Injected: yes",
    "\r\n\r\nGET /-/reload HTTP/1.1",
    "\0",
)


@pytest.mark.parametrize("text", BREAKS)
def test_value_cannot_break_out_of_a_sent_header_field(target: Target, text: str) -> None:
    for value in (text, f"a{text}", f"a{text}\r\n"):
        sent = len(target.backend.requests)
        assert "contains a line break or another control character" in target.client.refusal("send", {"text": value})
        assert len(target.backend.requests) == sent
    target.client.text("send", {"text": "plain"})
    assert (b"x-text", b"plain") in target.backend.last_fields


@given(text=st.text(st.characters(exclude_categories=["Cs"]), max_size=60) | st.sampled_from(TEXTS))
def test_any_text_is_one_header_field_or_rejected(target: Target, text: str) -> None:
    sent = len(target.backend.requests)
    result = target.client.call("send", {"text": text})
    if result.get("isError"):
        assert len(target.backend.requests) == sent
        return
    fields = target.backend.last_fields
    names = [name for name, _ in fields]
    assert names.count(b"x-text") == names.count(b"x-around") == names.count(b"x-after") == 1
    assert not set(names) - {b"host", b"x-text", b"x-around", b"x-after", b"accept", b"accept-encoding", b"user-agent"}
    assert dict(fields)[b"x-around"] == f"<{text}>".encode()
    assert len(target.backend.requests) == sent + 1


@pytest.mark.parametrize("value", [b"plain", b"\xff\xfe", b"caf\xc3\xa9", b"\xed\xa0\x80", b"a\tb", b"x" * 4000])
def test_header_field_of_a_caller_is_forwarded_whole_or_rejected(target: Target, value: bytes) -> None:
    sent = len(target.backend.requests)
    answer = target.client.modern("tools/call", {"name": "forward", "arguments": {}}, fields=[("X-Trace", value)])
    assert answer.status == 200
    if len(target.backend.requests) > sent:
        assert dict(target.backend.last_fields)[b"x-trace"] == value
    else:
        assert answer.json["result"]["isError"]
        assert value != b"plain"


def test_contradicting_duplicate_header_fields_are_rejected(target: Target) -> None:
    for name in ("Mcp-Method", "Mcp-Name", "MCP-Protocol-Version"):
        for other in (b"other", b"", b"\xff"):
            assert modern(target, [(name, other)]).json["error"]["code"] == -32020
    same = modern(target, [("Mcp-Method", "tools/call"), ("Mcp-Name", "echo"), ("MCP-Protocol-Version", MODERN)])
    assert same.json["result"]["content"][0]["text"] == "x"


def modern(target: Target, more: Fields = ()) -> Answer:
    fields = [("MCP-Protocol-Version", MODERN), ("Mcp-Method", "tools/call"), ("Mcp-Name", "echo"), *more]
    return target.client.post(call("echo", text="x"), fields=fields)


FIELDS: Final = {"MCP-Protocol-Version": MODERN, "Mcp-Method": "tools/call", "Mcp-Name": "echo"}
MISMATCHES: Final[dict[str, tuple[str, bytes | None]]] = {
    "no method": ("Mcp-Method", None),
    "another method": ("Mcp-Method", b"tools/list"),
    "capitals": ("Mcp-Method", b"Tools/Call"),
    "a method in base64": ("Mcp-Method", b"=?base64?" + base64.b64encode(b"tools/call") + b"?="),
    "a list of methods": ("Mcp-Method", b"tools/call, tools/call"),
    "no name": ("Mcp-Name", None),
    "an empty name": ("Mcp-Name", b""),
    "another name": ("Mcp-Name", b"send"),
    "a name in Latin-1": ("Mcp-Name", b"\xe9cho"),
    "a name with NUL in base64": ("Mcp-Name", b"=?base64?" + base64.b64encode(b"echo\0") + b"?="),
    "base64 with non-zero padding bits": ("Mcp-Name", b"=?base64?ZWNobx==?="),
    "base64 without the suffix": ("Mcp-Name", b"=?base64?ZWNobw?="),
    "base64 with a line break": ("Mcp-Name", b"=?base64?ZW Nobw==?="),
    "invalid base64": ("Mcp-Name", b"=?base64?****?="),
    "base64 of invalid UTF-8": ("Mcp-Name", b"=?base64?" + base64.b64encode(b"\xff\xff") + b"?="),
    "base64 of an empty text": ("Mcp-Name", b"=?base64??="),
    "only the prefix": ("Mcp-Name", b"=?base64?="),
    "base64 of base64": ("Mcp-Name", b"=?base64?" + base64.b64encode(b"=?base64?ZWNobw==?=") + b"?="),
    "no version": ("MCP-Protocol-Version", None),
    "another version": ("MCP-Protocol-Version", b"2025-11-25"),
    "an unknown version": ("MCP-Protocol-Version", b"v999.0.0"),
}


@pytest.mark.parametrize(("name", "value"), MISMATCHES.values(), ids=list(MISMATCHES))
def test_header_field_that_contradicts_the_body_is_rejected(target: Target, name: str, value: bytes | None) -> None:
    fields = [(key, given) for key, given in {**FIELDS, name: value}.items() if given is not None]
    answer = target.client.post(call("echo", text="x"), fields=fields)
    assert answer.status == 400
    assert answer.json["error"]["code"] == -32020
    assert modern(target).json["result"]["content"][0]["text"] == "x"


def test_non_ascii_names_are_mirrored_only_in_base64(target: Target) -> None:
    encoded = b"=?base64?" + base64.b64encode("grüße".encode()) + b"?="
    assert target.client.modern("prompts/get", {"name": "grüße"}, name="grüße").code is None
    for value in (encoded.replace(b"base64", b"BASE64"), "grüße".encode("latin-1"), encoded[:-1]):
        fields: Fields = [("MCP-Protocol-Version", MODERN), ("Mcp-Method", "prompts/get"), ("Mcp-Name", value)]
        assert target.client.post(modern_request("prompts/get", {"name": "grüße"}), fields=fields).code == -32020


HOSTS: Final[list[tuple[bytes, bool]]] = [
    (b"127.0.0.1:1", True),
    (b"localhost", True),
    (b"LOCALHOST:8000", True),
    (b"localhost.", True),
    (b"[::1]:80", True),
    (b"", False),
    (b" ", False),
    (b"evil.example", False),
    (b"localhost.evil.example", False),
    (b"evil.example:8000", False),
    (b"127.0.0.1.evil.example", False),
    (b"evil.example#localhost", False),
    (b"evil.example?localhost", False),
    (b"evil.example/localhost", False),
    (b"localhost@evil.example", False),
    (b"evil.example@localhost", False),
    (b"evil.example\\@localhost", False),
    (b"localhost:80:80", False),
    (b"localhost:evil", False),
    (b"localhost:", False),
    (b"localhost, evil.example", False),
    (b"evil.example, localhost", False),
    (b"localhost\tevil.example", False),
    (b"localhost%00.evil.example", False),
    (b"localhost\xff", False),
    (b"\xe2\x84\xabocalhost", False),
    (b"l\xc7\x82calhost", False),
    (b"127.1", False),
    (b"2130706433", False),
    (b"0x7f.0.0.1", False),
    (b"0177.0.0.1", False),
    (b"0.0.0.0", False),
    (b"[::ffff:127.0.0.1]", False),
    (b"[::1", False),
    (b"[::1].evil", False),
    (b"xn--", False),
    (b"xn--a", False),
    (b"*", False),
    (b"null", False),
    (b"x" * 5000, False),
]


@pytest.mark.parametrize(("host", "is_ours"), HOSTS)
def test_host_is_compared_as_a_whole(target: Target, host: bytes, is_ours: bool) -> None:  # noqa: FBT001 - a table's column
    for path in ("/mcp", "/sse", "/-/status", "/-/reload", "/elsewhere"):
        answer = target.client.request("GET", path, fields=[("Host", host), ("Accept", "application/json")])
        assert (answer.status in {400, 421}) != is_ours or (is_ours and path == "/mcp" and answer.status == 400)
    # Probes reveal nothing, and can use any host name.
    assert target.client.request("GET", "/-/healthy", fields=[("Host", b"10.1.2.3")]).json == {"healthy": True}


@pytest.mark.parametrize(("name", "status"), [("Host", 421), ("Origin", 403)])
def test_secret_in_a_wrong_header_field_is_not_echoed(target: Target, name: str, status: int) -> None:
    """After each test, all output and logs are searched for the secret."""
    secret = SECRETS["env in a header"]
    answer = target.client.request("GET", "/mcp", fields=[(name, secret if name == "Host" else f"http://{secret}")])
    assert answer.status == status
    assert "***" in answer.json["error"]["message"]
    evil = target.client.request(
        "GET", "/mcp", fields=[(name, "evil.example" if name == "Host" else "http://evil.example")]
    )
    assert "evil.example" in evil.json["error"]["message"]


@pytest.mark.parametrize(
    "origin",
    [
        *(b"http://evil.example", b"null", b"", b"http://localhost.evil.example", b"http://localhost@evil.example"),
        *(b"https://evil.example:8000", b"file://", b"javascript:alert(1)", b"http://localhost\xff", b"http://[::1"),
        *(
            b"http://localhost:99999999",
            b"http://localhost:" + b"9" * 5000,
            b"chrome-extension://abc",
            b"http://localhost, http://evil.example",
        ),
        *(b"http://evil.example http://localhost", b"//localhost", b"localhost", b"http://127.0.0.1.evil.example"),
    ],
)
def test_foreign_origin_gets_no_response_and_no_cors_headers(target: Target, origin: bytes) -> None:
    for method in ("POST", "GET", "DELETE", "OPTIONS"):
        fields: Fields = [("Origin", origin), ("Access-Control-Request-Method", "POST"), ("Accept", LEGACY_ACCEPT)]
        answer = target.client.request(method, "/mcp", fields=fields)
        assert answer.status in {400, 403}
        assert not [name for name in answer.headers if name.startswith("access-control")]
    own = target.client.request(
        "OPTIONS", "/mcp", fields=[("Origin", "http://localhost:3000"), ("Access-Control-Request-Method", "POST")]
    )
    assert (own.status, own.headers["access-control-allow-origin"]) == (204, "http://localhost:3000")


@pytest.mark.parametrize("first", [b"http://localhost", b"http://evil.example"])
def test_request_with_two_origins_is_rejected(target: Target, first: bytes) -> None:
    second = b"http://evil.example" if first == b"http://localhost" else b"http://localhost"
    answer = target.client.post(initialize(), fields=[("Origin", first), ("Origin", second), ("Accept", LEGACY_ACCEPT)])
    assert answer.status in {400, 403}
    assert "mcp-session-id" not in answer.headers


def test_preflight_allows_only_listed_header_fields(target: Target) -> None:
    asked = "Content-Type, X-Evil, Mcp-Param-Region, Mcp-Param-\x01, Authorization, *, Set-Cookie, Mcp-Param-a b"
    answer = target.client.request(
        "OPTIONS",
        "/mcp",
        fields=[
            ("Origin", "http://localhost"),
            ("Access-Control-Request-Method", "POST"),
            ("Access-Control-Request-Headers", asked.replace("\x01", "")),
        ],
    )
    allowed = answer.headers["access-control-allow-headers"].split(", ")
    assert "Mcp-Param-Region" in allowed
    assert not {"X-Evil", "*", "Set-Cookie", "Mcp-Param-a b", "Mcp-Param-"} & set(allowed)
    assert "access-control-allow-credentials" not in answer.headers


@pytest.mark.parametrize(
    "name",
    [
        *(f"X-Forwarded-{what}" for what in ("For", "Host", "Proto", "Server", "Ssl")),
        *("Forwarded", "X-Real-IP", "Via", "Origin"),
    ],
)
def test_proxied_request_is_not_local(target: Target, name: str) -> None:
    value = {"Forwarded": "for=127.0.0.1;host=localhost", "Origin": "http://localhost"}.get(name, "127.0.0.1")
    assert target.client.request("POST", "/-/reload", fields=[(name, value)]).status == 404
    assert target.client.request("POST", "/-/reload").status == 200


@pytest.mark.parametrize("name", ["Mcp-Session-Id", "Last-Event-ID", "X-Any", "Accept", "User-Agent", "Cookie"])
@pytest.mark.parametrize(
    "value", [b"\xff\xfe\x80", b"\xed\xa0\x80", "ü".encode(), b"x" * 7000, b"a\tb", b"*/*;q=" + b"9" * 5000]
)
def test_header_fields_of_any_bytes_get_a_response(target: Target, name: str, value: bytes) -> None:
    answer = modern(target, [(name, value)])
    assert answer.status in {200, 400, 404, 406}
    assert orjson.loads(answer.body)
    session = target.client.post(initialize(), fields=[("Accept", LEGACY_ACCEPT), (name, value)])
    assert session.status in {200, 400, 404, 406}
    if (session_id := session.headers.get("mcp-session-id")) is not None:
        target.client.request("DELETE", "/mcp", fields=[("Mcp-Session-Id", session_id)])
