"""Malformed requests on raw sockets, forged ids, floods, and text that looks like events."""

import base64
import re
import socket
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.json_types import Json, JsonObject
from tests.attacks.client import LEGACY_ACCEPT, Client, Fields, SessionClient, initialize
from tests.attacks.payloads import SHELL, TEXTS
from tests.attacks.target import Plan, Target
from tests.e2e.daemon import call
from tests.messages import MODERN, modern_request

PLUGIN: Final = """
import asyncio
from gateway.plugin import Context

async def told(text: str, context: Context) -> str:
    await context.progress(1, 2, text)
    await context.log("info", text)
    return text

async def asks(context: Context) -> str:
    answer = await context.elicit("who", "Who?", {"type": "object", "properties": {"name": {"type": "string"}}})
    return f"{answer.action} {answer.content}"

async def leaves(context: Context) -> str:
    await context.close_stream(20)
    await asyncio.sleep(0.05)
    return "came back"
"""

PLAN = Plan(
    file="""
    plugins: [plugins]
    server: {page_size: 1}
    tools:
      echo: {description: Repeat a text., input: {text: string}, content: [{text: "{{ text }}"}]}
      told: {python: "house:told"}
      asks: {python: "house:asks"}
      leaves: {python: "house:leaves"}
      sure: {description: Asks first., input: {what: string}, confirm: "Really {{ what }}?", content: [{text: done}]}
      printed:
        description: Print a text and report each of its lines.
        input: {text: string}
        shell: {command: [cat], stdin: "{{ text }}", progress: stdout}
      kept:
        description: More than one page.
        shell: {command: [seq, "200000"]}
        output: {overflow: resource}
    resources:
      one: {uri: "x://one", text: one}
    """,
    files={"plugins/house.py": PLUGIN},
)

BODY: Final = orjson.dumps(call("echo", text="x"))
HEAD: Final = (
    b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nMCP-Protocol-Version: 2026-07-28\r\n"
    b"Mcp-Method: tools/call\r\nMcp-Name: echo\r\n"
)
LENGTH: Final = b"Content-Length: %d\r\n" % len(BODY)
CLOSE: Final = b"Connection: close\r\n"


def statuses(heard: bytes) -> list[int]:
    """Return the statuses of all responses on one connection."""
    found = []
    while match := re.match(rb"HTTP/1\.[01] ([0-9]{3}) [^\r]*\r\n(.*?)\r\n\r\n", heard, re.DOTALL):
        found.append(int(match[1]))
        length = re.search(rb"(?im)^content-length: ([0-9]+)", match[2])
        heard = heard[match.end() + (int(length[1]) if length else 0) :]
    return found


MALFORMED: Final[dict[str, bytes]] = {
    "nothing": b"",
    "an empty line": b"\r\n\r\n",
    "noise": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\0" * 400,
    "half a line": b"POST /mc",
    "no version": b"GET /mcp\r\n\r\n",
    "HTTP of the past": b"GET /-/healthy HTTP/0.9\r\n\r\n",
    "HTTP of the future": b"GET /-/healthy HTTP/3.0\r\nHost: localhost\r\n\r\n",
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\x12\x04" + b"\0" * 20,
    "no host": b"GET /mcp HTTP/1.1\r\n\r\n",
    "an unknown method": b"G\xffT /mcp HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "a very long method": b"G" * 20_000 + b" /mcp HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "a very long path": b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "a path with spaces": b"GET /mcp x y HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "a path with control characters": b"GET /m\x01cp\x7f HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "an invalid path": b"GET mcp HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "a path that is a port": b"GET http://localhost:99999999/mcp HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "a path that is an address": b"GET http://[::1/mcp HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "a tunnel": b"CONNECT 127.0.0.1:22 HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "a very long field": b"GET /mcp HTTP/1.1\r\nHost: localhost\r\nX-A: " + b"a" * 200_000 + b"\r\n\r\n",
    "very many fields": b"GET /mcp HTTP/1.1\r\nHost: localhost\r\n" + b"X-A: a\r\n" * 40_000 + b"\r\n",
    "a very long name": b"GET /mcp HTTP/1.1\r\nHost: localhost\r\n" + b"X" * 100_000 + b": a\r\n\r\n",
    "a missing body": HEAD + b"Content-Length: 1000\r\n\r\n" + BODY,
    "a truncated body": HEAD + LENGTH + b"\r\n" + BODY[:20],
    "endless chunks": HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello",
    "endless trailers": HEAD + b"Transfer-Encoding: chunked\r\n\r\n0\r\n" + b"X-A: a\r\n" * 40_000 + b"\r\n",
    "a web socket": b"GET /mcp HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n",
}


@pytest.mark.parametrize("data", MALFORMED.values(), ids=list(MALFORMED))
def test_invalid_http_is_rejected_cheaply(target: Target, data: bytes) -> None:
    heard = target.client.send(data, half_close=True)
    assert not [status for status in statuses(heard) if status < 400 or status == 500], heard
    assert target.client.text("echo", {"text": "still"}) == "still"


def first_status(target: Target, data: bytes) -> int:
    """Return the status of the first response, and close the connection."""
    with target.client.connection() as connection:
        connection.sendall(data)
        heard = b""
        while b"\r\n\r\n" not in heard and (chunk := connection.recv(4096)):
            heard += chunk
        return statuses(heard)[0]


def test_body_over_the_limit_is_not_read(target: Target) -> None:
    announced = HEAD + CLOSE + b"Content-Length: 10000000000\r\n\r\n"
    assert first_status(target, announced) == 413
    chunk = b"100000\r\n" + b" " * 2**20 + b"\r\n"
    assert first_status(target, HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + chunk * 8) == 413
    padded = b" " * 2_000_000 + BODY
    assert statuses(target.client.send(HEAD + CLOSE + b"Content-Length: %d\r\n\r\n%b" % (len(padded), padded))) == [200]


def test_compressed_body_is_not_decompressed(target: Target) -> None:
    for encoding in (b"gzip", b"deflate", b"br", b"GZIP", b"identity, gzip", b"x-gzip"):
        bomb = HEAD + CLOSE + b"Content-Encoding: " + encoding + b"\r\n" + LENGTH + b"\r\n" + BODY
        assert statuses(target.client.send(bomb)) == [415]
    plain = HEAD + CLOSE + b"Content-Encoding: identity\r\n" + LENGTH + b"\r\n" + BODY
    assert statuses(target.client.send(plain)) == [200]


@pytest.mark.parametrize(
    "path",
    [
        *("/-/status/", "/-//status", "//-/status", "/-/./status", "/x/../-/status", "/-/status;x", "/-/status%00"),
        *("/-/%73tatus", "/%2d/status", "/-%2fstatus", "/./-/status", "http://evil.example/-/status"),
        *("/-/reload", "/-/config", "/metrics", "/-/%72eload", "/%6detrics"),
    ],
)
def test_spellings_of_a_path_cannot_reach_admin_pages(target: Target, path: str) -> None:
    for method in ("GET", "POST"):
        answer = target.client.request(method, path, fields=[("X-Forwarded-For", "203.0.113.9")])
        assert answer.status in {400, 403, 404, 405, 421}
        assert b"generation" not in answer.body
    assert target.direct.request("GET", "/-/status").status == 200


# Guessed or forged sessions, events, cursors and states, and those of other clients.


def neighbours(secret: str) -> list[str]:
    """Yield texts that differ slightly from a text."""
    swapped = ("A" if secret[0] != "A" else "B") + secret[1:]
    last = secret[:-1] + ("A" if secret[-1] != "A" else "B")
    return [
        swapped,
        last,
        secret[:-1],
        secret + "A",
        secret + "=",
        secret.swapcase(),
        secret[::-1],
        f" {secret}x",
        "",
        "x",
    ]


def test_guessed_session_id_is_unknown(target: Target) -> None:
    with target.client.session() as session:
        assert len(base64.urlsafe_b64decode(session.id + "==")) >= 16
        for guess in [*neighbours(session.id), "../" + session.id, session.id + "\t" + session.id, "a" * 5000, "é"]:
            stranger = SessionClient(target.client, guess)
            answer = stranger.post({"jsonrpc": "2.0", "id": 1, "method": "tools/list"})
            assert answer.status in {400, 404}, guess
            assert target.client.request("DELETE", "/mcp", fields=stranger.fields).status in {400, 404}
            assert target.client.request("GET", "/mcp", fields=stranger.fields).status in {400, 404}
        assert session.ask("tools/list")["result"]["tools"]
    ended = session.post({"jsonrpc": "2.0", "id": 1, "method": "tools/list"})
    assert ended.status == 404


def test_session_ids_are_unrelated(target: Target) -> None:
    ids = set()
    for _ in range(40):
        with target.client.session() as session:
            ids.add(session.id)
    assert len(ids) == len({each[:8] for each in ids}) == len({each[-8:] for each in ids}) == 40


def test_session_of_another_transport_is_unknown(target: Target) -> None:
    with target.client.session() as session:
        answer = target.client.post(
            {"jsonrpc": "2.0", "id": 1, "method": "ping"}, path=f"/messages?session_id={session.id}"
        )
        assert answer.status == 404
    with target.client.connection() as stream:
        stream.sendall(target.client.encoded("GET", "/sse", fields=[("Accept", "text/event-stream")]))
        heard = b""
        while not (found := re.search(rb"session_id=([\w-]+)\n", heard)):
            heard += (chunk := stream.recv(4096))
            assert chunk, heard
        session_id = found[1].decode()
        assert (
            SessionClient(target.client, session_id).post({"jsonrpc": "2.0", "id": 1, "method": "ping"}).status == 404
        )
        for guess in neighbours(session_id):
            path = f"/messages?session_id={guess.strip()}"
            assert target.client.post(initialize(), path=path.replace(" ", "%20")).status == 404
        assert target.client.post(initialize(), path=f"/messages?session_id={session_id}").status == 202


def resumable(session: SessionClient) -> str:
    """Return the id of the last event on a stream that the server closed during the request."""
    heard = session.post({"jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": {"name": "leaves"}}).body
    return str(re.findall(rb"id: ([0-9a-z]+-[0-9a-f]+-[0-9]+)", heard)[-1].decode())


def test_event_id_only_resumes_its_own_session(target: Target) -> None:
    with target.client.session() as mine, target.client.session() as other:
        event = resumable(mine)
        process, stream, number = event.split("-")
        forged = [
            *(f"{process}-{stream}-{each}" for each in (int(number) + 5, 10**11, "-1", "0x1", "")),
            *(f"{process}-{int(stream, 16) + 9:x}-0", f"{process}-{int(stream, 16) - 1:x}-0", f"{process}-0-0"),
            *("0-0", "-", "--", process, stream, f"{stream}-{number}", f"{event}\t1", "ffffffffffffffff-0"),
            *(f"{event} ", "a" * 3000, f"+{event}", event.upper() if event != event.upper() else "G-0-0", "٣-٣-٣"),
        ]
        for last in forged:
            if last.strip() == event:
                continue
            answer = target.client.request("GET", "/mcp", fields=[*mine.fields, ("Last-Event-ID", last.encode())])
            assert (answer.status, last) == (400, last)
        theirs = target.client.request("GET", "/mcp", fields=[*other.fields, ("Last-Event-ID", event)])
        assert theirs.status == 400
        resumed = target.client.request("GET", "/mcp", fields=[*mine.fields, ("Last-Event-ID", event)])
        assert resumed.messages[-1]["result"]["content"][0]["text"] == "came back"


def test_cursor_is_only_valid_for_its_own_list(target: Target) -> None:
    tools = target.client.modern("tools/list").json["result"]
    cursor = tools["nextCursor"]
    assert target.client.modern("tools/list", {"cursor": cursor}).json["result"]["tools"] != tools["tools"]
    encoded, _, signature = cursor.rpartition(".")
    inner = base64.urlsafe_b64encode(b'["tools","x",9999]').decode().rstrip("=")
    for forged in [
        *neighbours(cursor),
        f"{inner}.{signature}",
        inner,
        f"{encoded}.",
        "." + signature,
        "0",
        "../",
        "\0",
    ]:
        assert target.client.modern("tools/list", {"cursor": forged}).code == -32602
    others: tuple[Json, ...] = (0, [], {}, True, 1.5)
    for value in others:
        assert target.client.modern("tools/list", {"cursor": value}).code == -32602
    for other in ("resources/list", "prompts/list", "resources/templates/list"):
        assert target.client.modern(other, {"cursor": cursor}).code == -32602


ASKABLE: Final[JsonObject] = {"io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}}}


def ask(target: Target, tool: str, more: dict[str, Json], **arguments: Json) -> Json:
    """Call a tool that sends an input request. `more` contains responses and state of a retry."""
    params = {"name": tool, "arguments": arguments, "_meta": ASKABLE, **more}
    return target.client.modern("tools/call", params).messages[-1]


def accepted(asked: Json) -> dict[str, Json]:
    """Return the parameters of a retry that accepts every question."""
    answers = {key: {"action": "accept", "content": {}} for key in asked["inputRequests"]}
    return {"inputResponses": answers, "requestState": asked["requestState"]}


def test_request_state_is_valid_once_for_its_own_call(target: Target) -> None:
    asked = ask(target, "sure", {}, what="this")["result"]
    assert asked["resultType"] == "input_required"
    answer = accepted(asked)
    state = answer["requestState"]
    encoded, _, signature = state.rpartition(".")
    content = orjson.loads(base64.urlsafe_b64decode(encoded + "=="))
    later = base64.urlsafe_b64encode(orjson.dumps([content[0] + 10**6, *content[1:]])).rstrip(b"=").decode()
    forged = [
        *neighbours(state),
        f"{later}.{signature}",
        f"{later}.",
        later,
        state + "!!",
        state.replace("-", "+") + "\n",
    ]
    for each in forged:
        if each != state:
            refused = ask(target, "sure", {**answer, "requestState": each}, what="this")
            assert refused.get("error", {}).get("code") == -32602, (each, refused)
    others: tuple[Json, ...] = (0, [], {}, True, None, "")
    for value in others:
        message = ask(target, "sure", {**answer, "requestState": value}, what="this")
        assert "done" not in str(message.get("result", {}).get("content")), value
    assert ask(target, "sure", answer, what="that")["error"]["code"] == -32602
    assert ask(target, "asks", answer)["error"]["code"] == -32602
    without = ask(target, "sure", {"inputResponses": answer["inputResponses"]}, what="this")
    assert "content" not in without["result"]
    assert ask(target, "sure", answer, what="this")["result"]["content"][0]["text"] == "done"
    again = ask(target, "sure", answer, what="this")
    assert "done" not in str(again.get("result", {}).get("content"))


def test_kept_output_requires_its_whole_uri(target: Target) -> None:
    link = target.client.call("kept")["content"][-1]["uri"]
    assert target.client.modern("resources/read", {"uri": link}).json["result"]["contents"]
    prefix, _, secret = link.rpartition("/")
    for guess in neighbours(secret):
        assert target.client.modern("resources/read", {"uri": f"{prefix}/{guess}"}).code == -32602
    listed = target.client.modern("resources/list").json["result"]["resources"]
    assert all(entry["uri"] != link for entry in listed)


FORGED: Final = (
    '\n\nevent: message\ndata: {"jsonrpc":"2.0","id":1,"result":{}}\n\n',
    "\r\rdata: forged\r\r",
    "\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
    "\u2028\u2029\x85\x0b\x0c\x1c\x1d\x1edata: forged",
    "\nid: 0-0\nretry: 1\n:",
    "\0",
)  # fmt: skip


@pytest.mark.parametrize("text", FORGED)
def test_text_cannot_become_a_separate_event(target: Target, text: str) -> None:
    fields: Fields = [("Accept", "text/event-stream")]
    params = {"name": "told", "arguments": {"text": text}, "_meta": {"progressToken": text}}
    answer = target.client.modern("tools/call", params, fields=fields)
    assert_events(answer.body)
    params["_meta"] = {"progressToken": text, "io.modelcontextprotocol/logLevel": "debug"}
    assert_events(target.client.modern("tools/call", params, fields=fields, request_id=text).body)
    with target.client.session() as session:
        message = {
            "jsonrpc": "2.0",
            "id": text,
            "method": "tools/call",
            "params": {**params, "_meta": {"progressToken": text}},
        }
        assert_events(session.post(message, fields=fields).body)


def assert_events(body: bytes) -> None:
    """Check that each event was sent by the daemon, for SSE parsers (WHATWG HTML §9.2.6) and for `splitlines`."""
    kinds = {b"event: message", b"", b":"}
    for line in re.split(b"\r\n|\r|\n", body):
        if line.startswith(b"data: {"):
            assert orjson.loads(line[6:])["jsonrpc"] == "2.0"
        else:
            assert line in kinds or re.fullmatch(
                rb"id: [0-9a-z]+-[0-9a-f]+-[0-9]+(-[A-Za-z0-9_-]+)?|data: |retry: [0-9]+", line
            ), line
    last = orjson.loads(re.findall(rb"data: (\{.*)", body)[-1])
    assert not last["result"].get("isError")


@given(text=st.text(st.sampled_from('\n\r\x85\u2028\u2029\0\x1b\x0b:{}" dataevent'), max_size=40))
def test_text_cannot_leave_its_event(target: Target, text: str) -> None:
    params = {"name": "told", "arguments": {"text": text}, "_meta": {"progressToken": text}}
    body = target.client.modern("tools/call", params, fields=[("Accept", "text/event-stream")]).body
    assert_events(body)


@pytest.mark.parametrize(
    "text", ["\x1b[2J\x1b]0;owned\x07", "\x9b31m", "\x1bP+q\x1b\\", "\x07\x08\x0c", "a\x1b", "\r\x1b[1A"]
)
def test_terminal_escapes_of_a_program_are_removed(target: Target, text: str) -> None:
    params = {"name": "printed", "arguments": {"text": f"before {text} after\n"}, "_meta": {"progressToken": 1}}
    answer = target.client.modern("tools/call", params, fields=[("Accept", "text/event-stream")])
    for message in answer.messages:
        assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", str(message).replace("\\n", "")), message
    assert "before" in answer.messages[-1]["result"]["content"][0]["text"]


def test_caller_cannot_forge_log_lines(target: Target) -> None:
    for text in (*SHELL, *TEXTS, '\n{"event":"forged","level":"error"}\n', "\x1b[2J"):
        short = text[:500]
        target.client.call(short, {"text": short})
        target.client.modern("resources/read", {"uri": short})
        target.client.modern(short.replace("\n", "") or "x", {})
        target.client.request("GET", "/mcp", fields=[("Accept", LEGACY_ACCEPT), ("Mcp-Session-Id", "x")])
    assert all(orjson.loads(line)["event"] != "forged" for line in target.log)
    assert all(line.rstrip("\n").isprintable() for line in target.log)


@pytest.mark.build
def test_aborted_streams_leave_no_resources(target: Target) -> None:
    def one(number: int) -> None:
        client = Client(port=target.client.port)
        fields: Fields = [("Accept", "text/event-stream")]
        listen = orjson.dumps(modern_request("subscriptions/listen", {"notifications": {"toolsListChanged": True}}))
        names: Fields = [("MCP-Protocol-Version", MODERN), ("Mcp-Method", "subscriptions/listen")]
        requests = (
            client.encoded("GET", "/sse", fields=fields),
            client.encoded("POST", "/mcp", fields=[*fields, *names, ("Content-Type", "application/json")], body=listen),
            HEAD + LENGTH + b"\r\n" + BODY,
        )
        with client.connection() as connection:
            connection.sendall(requests[number % 3])
            if number % 2:
                connection.recv(100)
            if number % 5 == 0:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(one, range(300)))
