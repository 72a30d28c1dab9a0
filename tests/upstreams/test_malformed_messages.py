"""Malformed messages of upstreams are repaired if possible, and otherwise fail only their request."""

import asyncio
import json
import re
import sys
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest
from aiohttp import web

from gateway.errors import RpcError
from gateway.json_types import Json
from gateway.upstreams.client.link import Incoming, Pending, Unreadable, messages_in
from gateway.wire.jsonrpc import MAX_BATCH, Response
from tests import local_server
from tests.upstreams.test_controls import state
from tests.upstreams.test_failures import config, gateway, said, until_listed

RAW: Final = Path(__file__).parent / "testdata" / "raw_server.py"
SECONDS: Final = 20.0
START: Final = '{"jsonrpc": "2.0", "id": ID, "result": {"content": [{"type": "text", "text": "'


def raw(**answers: str) -> str:
    return f"command: {json.dumps([sys.executable, '-IS', str(RAW), json.dumps(answers)])}, prefix: ''"


@dataclass
class ToolServer:
    """A legacy server over HTTP whose tool `bad` returns a given body and status."""

    body: str = ""
    status: int = 200
    kind: str = "application/json"
    sessions: int = 0
    seen: list[str] = field(default_factory=list)

    async def answer(self, request: web.Request) -> web.Response:
        message = await request.json()
        self.seen.append(message["method"])
        if "id" not in message:
            return web.Response(status=202)
        if message["method"] == "initialize":
            self.sessions += 1
        if message["method"] == "tools/call" and message["params"]["name"] == "bad":
            text = self.body.replace("ID", str(message["id"]))
            return web.Response(status=self.status, body=text.encode("latin-1"), content_type=self.kind)
        results: dict[str, Json] = {
            "initialize": {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {}},
            "tools/list": {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in ("good", "bad")]},
            "tools/call": {"content": [{"type": "text", "text": f"session {request.headers.get('Mcp-Session-Id')}"}]},
        }
        reply = {"jsonrpc": "2.0", "id": message["id"], "result": results[message["method"]]}
        return web.json_response(reply, headers={"Mcp-Session-Id": f"{self.sessions}"})

    @property
    def application(self) -> web.Application:
        application = web.Application()
        application.router.add_post("/mcp", self.answer)
        return application


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (START + 'cut \\ud83d"}]}}', "cut \ufffd"),
        (START + 'cut \\ude00 and whole \\ud83d\\ude00"}]}}', "cut \ufffd and whole \U0001f600"),
        (START + 'caf\xe9"}]}}', "caf\ufffd"),
        (START + 'a\ttab"}]}}', "a\ttab"),
        ("\xef\xbb\xbf" + START + 'marked"}]}}', "marked"),
        (START + 'x"}], "structuredContent": {"v": NaN, "w": [Infinity, -Infinity, 1e999, 1.5]}}}', "x"),
        ("Loading {1} of 2 ... " + START + 'after a text"}]}}', "after a text"),
        ('{"jsonrpc": "2.0", "method": "notifications/message"}' + START + 'after another"}]}}', "after another"),
        (START + "no quote}]}}", "sent an invalid message"),
        (START + 'an escape \\x"}]}}', "sent an invalid message"),
        (START + "LONG", "invalid message: a line of more than 1 MiB"),
        (
            '{"result": {"content": [{"id": 7, "text": "LONG"}]}, "jsonrpc": "2.0", "id": ID}',
            "a line of more than 1 MiB",
        ),
        ('{"result": {"content": [{"text": \'x\'}]}, "jsonrpc": "2.0", "id": ID}', "sent an invalid message"),
        (
            '{"jsonrpc": "2.0", "id": "ID", "result": {"content": [{"type": "text", "text": "an id of text"}]}}',
            "of text",
        ),
        ('{"jsonrpc": "2.0", "id": ID.0, "result": {"content": [{"type": "text", "text": "a float"}]}}', "a float"),
        ('{"id": ID, "result": {"content": [{"type": "text", "text": "no version"}]}}', "no version"),
        (
            '{"jsonrpc": 2, "id": ID, "error": null, "result": {"content": [{"type": "text", "text": "no error"}]}}',
            "no err",
        ),
    ],
)
async def test_malformed_stdio_response_is_repaired_or_fails_only_its_call(
    line: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.upstreams.client.stdio_link.MAX_LINE", 2**20)
    async with asyncio.timeout(SECONDS), gateway(config(tmp_path, up=raw(odd=line))) as running:
        await until_listed(running, "odd")
        client = running.memory_client()
        before = await said(client, "pid")
        for _ in range(6):
            assert expected in await said(client, "odd")
        assert await said(client, "pid") == before
        assert state(running, "up")["restarts"] == 0


PRETTY: Final = json.dumps(
    {"jsonrpc": "2.0", "id": "#", "result": {"content": [{"type": "text", "text": 'all {of} "it" ['}]}}, indent=2
).replace('"#"', "ID")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (PRETTY, 'all {of} "it" ['),
        (PRETTY.replace("\n", "\r\n"), "all {of}"),
        (PRETTY.replace("\n", "\n\n"), "all {of}"),
        (re.sub(r"\n +", "\n", PRETTY), "all {of}"),
        ("[\n" + PRETTY + "\n]", "all {of}"),
        ('{\n  "level": "info"\n}\n' + PRETTY, "all {of}"),
        ('{\n  "level": "info",\n' + START + 'after an unfinished text"}]}}', "after an unfinished text"),
        ("[1, [\n" + PRETTY.replace("\n", "") + "\n", "all {of}"),
        (PRETTY[: PRETTY.index("result")].rstrip('" \n'), "sent an invalid message"),
        (PRETTY.replace('"text": "', '"text": '), "sent an invalid message"),
        ("{\n" * 5000 + PRETTY.replace("\n", ""), "all {of}"),
        ("{\n" + "{" * 120_000 + "\n" + PRETTY.replace("\n", ""), "all {of}"),
    ],
)
async def test_pretty_printed_messages_over_stdio_are_read(
    text: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.upstreams.client.stdio_link._JOIN_SECONDS", 0.1)
    async with asyncio.timeout(SECONDS), gateway(config(tmp_path, up=raw(odd=text))) as running:
        await until_listed(running, "odd")
        client = running.memory_client()
        before = await said(client, "pid")
        for _ in range(3):
            assert expected in await said(client, "odd")
        assert await said(client, "pid") == before
        assert state(running, "up")["restarts"] == 0


async def test_server_with_pretty_printed_handshake_is_connected(tmp_path: Path) -> None:
    answers = {
        "initialize": {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {}},
        "tools/list": {"tools": [{"name": "pretty", "inputSchema": {"type": "object", "properties": {}}}]},
        "pretty": {"content": [{"type": "text", "text": "read"}]},
    }
    written = {
        method: json.dumps({"jsonrpc": "2.0", "id": "#", "result": result}, indent=4).replace('"#"', "ID")
        for method, result in answers.items()
    }
    async with asyncio.timeout(SECONDS), gateway(config(tmp_path, up=raw(**written))) as running:
        await until_listed(running, "pretty")
        assert await said(running.memory_client(), "pretty") == "read"
        assert "malformed_messages" not in state(running, "up")


@pytest.mark.parametrize("end", ["", "\n", "\nid: 7", "\r"])
async def test_response_at_end_of_stream_needs_no_blank_line(end: str, tmp_path: Path) -> None:
    body = f'data: {START}whole"}}]}}}}{end}'
    async with local_server.listening(ToolServer(body=body, kind="text/event-stream").application) as port:
        entry = f"url: 'http://127.0.0.1:{port}/mcp', allow_private: true"
        async with asyncio.timeout(SECONDS), gateway(config(tmp_path, up=entry)) as running:
            await until_listed(running, "up_bad")
            assert await said(running.memory_client(), "up_bad") == "whole"


@pytest.mark.parametrize(
    "body", ['{"jsonrpc": "2.0", "id": ID, "error": null, "result": RESULT}', '{"id": "ID", "result": RESULT}']
)
@pytest.mark.parametrize("kind", ["application/json", "text/plain", "text/event-stream"])
async def test_malformed_http_response_is_repaired(body: str, kind: str, tmp_path: Path) -> None:
    body = body.replace("RESULT", '{"content": [{"type": "text", "text": "half \\ud83d"}]}')
    body = f"data: {body}\n\n" if kind == "text/event-stream" else body
    async with local_server.listening(ToolServer(body=body, kind=kind).application) as port:
        entry = f"url: 'http://127.0.0.1:{port}/mcp', allow_private: true"
        async with asyncio.timeout(SECONDS), gateway(config(tmp_path, up=entry)) as running:
            await until_listed(running, "up_bad")
            assert await said(running.memory_client(), "up_bad") == "half \ufffd"


ERROR: Final = '{"jsonrpc": "2.0", "id": ID, "error": {"code": -32050, "message": "no such row"}}'


@pytest.mark.parametrize(
    ("status", "kind", "body", "expected"),
    [
        (401, "text/plain", "", "requires different credentials"),
        (403, "text/plain", "not for you", "responds with 403 Forbidden: not for you"),
        (400, "text/plain", "no such row", "responds with 400 Bad Request: no such row"),
        (404, "application/json", ERROR, "no such row"),
        (500, "application/json", ERROR, "no such row"),
        (503, "text/plain", "no such row", "responds with 503 Service Unavailable: no such row"),
        (302, "text/html", "", "responds with 302"),
        (200, "application/json", START, "without a JSON-RPC response"),
        (200, "application/json", START + "LONG", "more than 1 MiB"),
        (200, "text/event-stream", "data: " + START + "\n\n", "sent an invalid message"),
        (200, "text/event-stream", "data: " + START + "LONG", "sent an event of more than 1 MiB"),
        (200, "text/event-stream", ": nothing\n\n", "ended the stream without a response"),
        (200, "text/event-stream", 'data: {"jsonrpc": "2.0", "id": ID, "res', "ended the stream without a response"),
        (200, "text/html", "<p>Sign in", "responds with 200 text/html"),
    ],
)
async def test_bad_response_of_one_tool_keeps_the_session_and_other_tools(
    status: int, kind: str, body: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.upstreams.client.http_link.MAX_BODY", 2**20)
    monkeypatch.setattr("gateway.wire.event_parser.EventParser.__init__.__kwdefaults__", {"max_event": 2**20})
    server = ToolServer(body=body.replace("LONG", "x" * 1_100_000), status=status, kind=kind)
    async with local_server.listening(server.application) as port:
        entry = f"url: 'http://127.0.0.1:{port}/mcp', allow_private: true, era: legacy"
        async with asyncio.timeout(SECONDS), gateway(config(tmp_path, up=entry)) as running:
            await until_listed(running, "up_bad")
            client = running.memory_client()
            before = await said(client, "up_good")
            for _ in range(6):
                try:
                    text = await said(client, "up_bad")
                except Exception as error:  # noqa: BLE001 - an error of JSON-RPC stays one
                    text = str(error)
                assert expected in text
            assert await said(client, "up_good") == before
            assert state(running, "up")["state"] == "up"


@pytest.mark.parametrize(
    ("line", "ids"),
    [
        (b'{"level": "info", "id": 3, "msg": "a log of JSON"}', []),
        (b'{"jsonrpc": "2.0", "method": "roots/list", "id": 3, "params": [}', []),
        (b'{"jsonrpc": "2.0", "id": 3, "result": {"a": [}', [3]),
        (b"[info] started", []),
    ],
)
def test_only_the_id_of_the_message_itself_is_used(line: bytes, ids: list[int]) -> None:
    found = messages_in(line)
    assert not any(isinstance(each, Response) for each in found)
    assert [each.answers for each in found if isinstance(each, Unreadable) and each.answers] == ids


def test_number_of_messages_on_one_line_is_limited() -> None:
    assert len(messages_in(b'{"jsonrpc": "2.0", "method": "notifications/message"}' * 1000)) <= MAX_BATCH + 1


@pytest.mark.parametrize("start", ['"id": null, ', ""])
async def test_error_without_id_belongs_to_the_only_open_call(start: str, tmp_path: Path) -> None:
    line = f'{{"jsonrpc": "2.0", {start}"error": {{"code": -32700, "message": "not read here"}}}}'
    async with asyncio.timeout(SECONDS), gateway(config(tmp_path, up=raw(odd=line))) as running:
        await until_listed(running, "odd")
        client = running.memory_client()
        before = await said(client, "pid")
        with pytest.raises(RpcError, match="not read here"):
            await said(client, "odd")
        assert await said(client, "pid") == before


@pytest.mark.parametrize(("ids", "has_notified"), [((1, 2), False), ((1,), True)])
async def test_ambiguous_error_without_id_is_malformed(ids: tuple[int, ...], *, has_notified: bool) -> None:
    pending = Pending()
    if has_notified:
        pending.note_notification()
    received: list[Incoming] = []
    error = messages_in(b'{"jsonrpc": "2.0", "id": null, "error": {"code": -32600, "message": "no id"}}')
    with pending.expecting(1) as first:
        with ExitStack() as others:
            waiting = [first, *(others.enter_context(pending.expecting(each)) for each in ids[1:])]
            pending.take(error, lambda message, during: received.append(message))
            assert [isinstance(each, Unreadable) and "no id" in each.excerpt for each in received] == [True]
            assert not any(each.done() for each in waiting)
        pending.take(error, lambda message, during: received.append(message))
        assert first.result() == Response(1, None, {"code": -32600, "message": "no id"})


async def test_response_without_a_blank_line_is_read_from_an_open_stream(tmp_path: Path) -> None:
    server = ToolServer()
    ended = asyncio.Event()

    async def answer(request: web.Request) -> web.StreamResponse:
        message = await request.json()
        if message["method"] != "tools/call":
            return await server.answer(request)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        text = f'event: message\ndata: {START}whole"}}]}}}}'.replace("ID", str(message["id"]))
        await response.write(text[:-20].encode())
        await response.write(text[-20:].encode())
        await ended.wait()
        return response

    application = web.Application()
    application.router.add_post("/mcp", answer)
    async with local_server.listening(application) as port:
        entry = f"url: 'http://127.0.0.1:{port}/mcp', allow_private: true"
        async with asyncio.timeout(SECONDS), gateway(config(tmp_path, up=entry)) as running:
            await until_listed(running, "up_good")
            assert await said(running.memory_client(), "up_good") == "whole"
            ended.set()
