"""One client cannot use up connections, sessions, streams, calls or time. Other clients are still served.

The attacker has a different loopback address than the legitimate client, which is served while the attacker's
connections, sessions and calls stay open. If it is not served, the test times out.
"""

import select
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Final

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.json_types import Json, JsonObject
from tests.attacks.client import LEGACY_ACCEPT, TIMEOUT_SECONDS, Client, initialize
from tests.attacks.target import Plan, Target

PLAN = Plan(
    file=r"""
    limits:
      connections: {in_all: 90, per_caller: 60}
      sessions: {in_all: 40, per_caller: 25}
      streams: {in_all: 30, per_caller: 15}
      concurrency: {per_caller: 4, in_all: 8}
      queue: {per_caller: 4, in_all: 8}
      request_depth: 32
    listen: {receive_timeout: 2s, max_body: 4MiB}
    tools:
      echo: {description: Repeat a text., input: {text: string}, content: "{{ text }}"}
      slow: {description: Take long., shell: {command: [sleep, "600"]}}
      seldom: {description: Three times an hour., rate_limit: 3/hour, content: here}
      strict:
        description: Check with catastrophic patterns.
        input:
          email: {type: string, required: false, pattern: '^([a-z0-9])(([\-.]|[_]+)?([a-z0-9]+))*(@){1}[a-z0-9]+$'}
          path: {type: string, required: false, pattern: '^(?!.*\.\.)(?:[a-z]+/?)+$'}
          twice: {type: string, required: false, pattern: '^(a+)+\1$'}
          mail: {type: string, required: false, format: email}
          when: {type: string, required: false, format: date-time}
        content: fits
      unique:
        description: Compare items.
        input: {items: {type: array, uniqueItems: true}}
        content: all different
      tree:
        description: Check a tree of alternatives.
        input_schema:
          type: object
          properties: {tree: {$ref: "#/$defs/node"}}
          $defs:
            node:
              anyOf:
                - {properties: {kind: {const: and}, args: {items: {$ref: "#/$defs/node"}}}, required: [kind, args]}
                - {properties: {kind: {const: or}, args: {items: {$ref: "#/$defs/node"}}}, required: [kind, args]}
                - {properties: {kind: {const: leaf}}, required: [kind]}
        content: grown
    resources:
      any: {uri: "any://{+path}", text: "{{ path }}"}
    prompts:
      pick:
        description: Complete me.
        arguments: {word: {description: A word., complete: [alpha, beta]}}
        messages: [{user: "{{ word | default('none') }}"}]
    """,
    tolerated=frozenset({"slow reader dropped"}),
)

ATTACKER: Final = ("127.0.0.2", 0)
HEAD: Final = b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"


@contextmanager
def open_lines(target: Target, number: int) -> Iterator[list[socket.socket]]:
    """Open connections of the attacker."""
    with ExitStack() as stack:
        place = ("127.0.0.1", target.direct.port)
        yield [stack.enter_context(socket.create_connection(place, TIMEOUT_SECONDS, ATTACKER)) for _ in range(number)]


def first_with_data(lines: Sequence[socket.socket], number: int) -> list[socket.socket]:
    """Return the connections that received data, once there are `number` of them."""
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while len(found := select.select(lines, [], [], 0)[0]) < number and time.monotonic() < deadline:
        time.sleep(0.01)
    assert len(found) == number
    return found


def heard(line: socket.socket) -> bytes:
    """Return everything until the daemon closes the connection."""
    received = b""
    try:
        while chunk := line.recv(65536):
            received += chunk
    except ConnectionError:
        pass
    return received


def assert_others_work(target: Target) -> None:
    """Check that another client can call, read and open a session."""
    client = target.client
    assert client.text("echo", {"text": "still here"}) == "still here"
    with client.session() as session:
        assert session.ask("resources/read", {"uri": "any://a"})["result"]["contents"][0]["text"] == "a"


@pytest.mark.parametrize(
    "begin",
    [b"", b"G", HEAD, HEAD + b"Content-Length: 9\r\n\r\n{", HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\n{"],
    ids=["nothing", "a byte", "half a head", "half a body", "half a chunk"],
)
def test_unfinished_requests_are_dropped(target: Target, begin: bytes) -> None:
    with open_lines(target, 50) as lines:
        for line in lines:
            line.sendall(begin)
        assert_others_work(target)
        said = {heard(line).partition(b"\r\n")[0] for line in lines}
    assert said == ({b""} if not begin else {b"HTTP/1.1 408 Request Timeout"})


def test_slow_heads_and_bodies_do_not_block_others(target: Target) -> None:
    with open_lines(target, 40) as lines:
        for byte in HEAD[:60]:
            for line in lines:
                line.sendall(bytes([byte]))
        assert_others_work(target)


def test_connections_of_one_address_are_limited(target: Target) -> None:
    with open_lines(target, 75) as lines:
        assert_others_work(target)
        refused = [line for line in lines if b" 503 " in heard(line)]
    assert len(refused) == 15


def attacker(target: Target) -> "AttackerClient":
    return AttackerClient(port=target.direct.port)


class AttackerClient(Client):
    """A client with the attacker's address."""

    @contextmanager
    def connection(self) -> Iterator[socket.socket]:
        with socket.create_connection((self.host, self.port), TIMEOUT_SECONDS, ATTACKER) as connection:
            yield connection


def test_sessions_of_one_caller_are_limited(target: Target) -> None:
    client = attacker(target)
    opened = [client.post(initialize(), fields=[("Accept", LEGACY_ACCEPT)]) for _ in range(40)]
    assert [answer.status for answer in opened] == [200] * 25 + [503] * 15
    assert "limits.sessions.per_caller" in opened[-1].json["error"]["message"]
    assert_others_work(target)
    for answer in opened[:25]:
        fields = [("Mcp-Session-Id", answer.headers["mcp-session-id"])]
        assert client.request("DELETE", "/mcp", fields=fields).status == 204


def test_streams_of_one_caller_are_limited(target: Target) -> None:
    client = attacker(target)
    with open_lines(target, 20) as lines:
        for line in lines:
            line.sendall(client.encoded("GET", "/sse", fields=[("Accept", "text/event-stream")]))
        statuses = sorted(line.recv(13) for line in lines)
        assert statuses == [b"HTTP/1.1 200 "] * 15 + [b"HTTP/1.1 503 "] * 5
        assert_others_work(target)


def test_slow_calls_of_one_caller_leave_permits_for_others(target: Target) -> None:
    client = attacker(target)
    body = orjson.dumps(
        {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "tools/call",
            "params": {
                "name": "slow",
                "_meta": {
                    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                    "io.modelcontextprotocol/clientCapabilities": {},
                },
            },
        }
    )
    fields = [
        ("Content-Type", "application/json"),
        ("Accept", "application/json"),
        ("MCP-Protocol-Version", "2026-07-28"),
        ("Mcp-Method", "tools/call"),
        ("Mcp-Name", "slow"),
    ]
    with open_lines(target, 20) as lines:
        for line in lines:
            line.sendall(client.encoded("POST", "/mcp", fields=fields, body=body))
        for line in first_with_data(lines, 12):  # four run and four wait
            assert b"limits.concurrency, per_caller" in line.recv(65536)
        assert_others_work(target)


def test_rate_limit_is_per_caller(target: Target) -> None:
    client = attacker(target)
    texts = [client.call("seldom")["content"][0]["text"] for _ in range(20)]
    assert texts[:3] == ["here"] * 3
    assert all(text.startswith("Called too often: at most 3/hour") for text in texts[3:])
    assert target.client.text("seldom") == "here"


LONG: Final = 3_500_000
REDOS: Final[dict[str, JsonObject]] = {
    "nested quantifiers": {"email": "a" * LONG + "!"},
    "short nested quantifiers": {"email": "a" * 60 + "!"},
    "look-ahead": {"path": "a" * LONG + "!"},
    "short look-ahead": {"path": "a" * 4000 + "!"},
    "back-reference": {"twice": "a" * 4000 + "!"},
    "address": {"mail": "a@" + "a." * (LONG // 2)},
    "time": {"when": "1" * LONG},
}


@pytest.mark.parametrize("arguments", REDOS.values(), ids=REDOS)
def test_patterns_run_in_bounded_time(target: Target, arguments: JsonObject) -> None:
    assert "Invalid arguments" in target.client.refusal("strict", arguments)
    fitting = {"email": "ada@example", "path": "a/b", "twice": "aa", "mail": "ada@example.org"}
    assert target.client.text("strict", {**fitting, "when": "2025-01-31T12:30:00Z"}) == "fits"


@given(st.text("ab!/. ", max_size=4096), st.sampled_from(["email", "path", "twice", "mail", "when"]))
def test_generated_text_cannot_block_a_pattern(target: Target, text: str, name: str) -> None:
    result = target.client.call("strict", {name: text})
    assert "content" in result


@pytest.mark.parametrize(
    ("items", "answer"),
    [
        ([2**63 + number for number in range(100_000)], "too many for `uniqueItems`"),
        ([[2**63 + number] for number in range(100_000)], "too many for `uniqueItems`"),
        ([1] * 500_000, "must not contain duplicate items"),
        (list(range(300_000)), ""),
        ([[]] * 2, "must not contain duplicate items"),
    ],
    ids=["large integers", "large integers in lists", "equal", "control", "small"],
)
def test_huge_arrays_are_validated_or_rejected(target: Target, items: Json, answer: str) -> None:
    if answer:
        assert answer in target.client.refusal("unique", {"items": items})
    else:
        assert target.client.text("unique", {"items": items}) == "all different"


def test_deep_schema_errors_are_not_exponential(target: Target) -> None:
    wrong: Json = {"kind": "leave"}
    right: Json = {"kind": "leaf"}
    for _ in range(12):
        wrong, right = {"kind": "and", "args": [wrong]}, {"kind": "and", "args": [right]}
    assert "Invalid arguments" in target.client.refusal("tree", {"tree": wrong})
    assert target.client.text("tree", {"tree": right}) == "grown"


@pytest.mark.parametrize("depth", [31, 33, 100_000])
def test_deep_json_is_rejected_before_parsing(target: Target, depth: int) -> None:
    answer = target.client.post(b"[" * depth + b"]" * depth)
    assert answer.status == 400
    assert_others_work(target)


def test_subscriptions_are_limited_in_number_and_length(target: Target) -> None:
    with target.client.session() as session:
        too_long = session.ask("resources/subscribe", {"uri": "any://" + "x" * 10_000})
        assert "8192 characters" in too_long["error"]["message"]
        assert session.ask("resources/subscribe", {"uri": "any://" + "x" * 1000})["result"] == {}
        answers = [session.ask("resources/subscribe", {"uri": f"any://{n:x<8000}"}) for n in range(40)]
        assert "result" in answers[20]
        assert "262144 characters" in answers[-1]["error"]["message"]
    wanted = {"notifications": {"resourceSubscriptions": [f"any://{number}" for number in range(100_000)]}}
    assert target.client.modern("subscriptions/listen", wanted).code == -32602


@pytest.mark.parametrize("member", ["clientInfo", "capabilities"])
def test_memory_of_a_session_is_bounded(target: Target, member: str) -> None:
    hello = initialize()
    large = {**hello, "params": {**hello["params"], member: {"name": "x", "version": "y" * 1_000_000}}}
    answer = target.client.post(large, fields=[("Accept", LEGACY_ACCEPT)])
    assert "16384 bytes" in answer.json["error"]["message"]
    assert_others_work(target)


@pytest.mark.parametrize("value", ["x" * LONG, "a", ""])
@pytest.mark.build
def test_completion_accepts_any_text(target: Target, value: str) -> None:
    wanted = {"ref": {"type": "ref/prompt", "name": "pick"}, "argument": {"name": "word", "value": value}}
    values = target.client.modern("completion/complete", wanted).json["result"]["completion"]["values"]
    assert values == [word for word in ("alpha", "beta") if value in word]
