"""Connections to slow and non-conforming servers, and lost sessions."""

import asyncio
import gc
import json
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest
from aiohttp import web

from gateway.app.gateway import Gateway
from gateway.config.models.upstreams import Upstream
from gateway.errors import RpcError
from gateway.json_types import Json
from gateway.upstreams.client.http_link import HttpLink
from gateway.upstreams.connecting import ConnectionAttempt
from gateway.upstreams.failures import UpstreamError
from gateway.upstreams.pool import CircuitBreaker, SessionPool
from gateway.upstreams.server_spec import ServerSpec
from gateway.wire.revisions import Era
from tests import local_server
from tests.upstreams.test_controls import ada, state
from tests.upstreams.test_failures import ODD, config, gateway, said, until, until_listed
from tests.upstreams.test_links import IgnoringListener, http_endpoint
from tests.upstreams.test_malformed_messages import RAW

SECONDS: Final = 30.0
MODERN: Final = (
    '{"jsonrpc": "2.0", "id": ID, "result": {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}}'
)


@dataclass
class LegacyServer:
    """A legacy server over HTTP with sessions. `refused` overrides the responses to methods."""

    tool: str = "old"
    unknown: tuple[int, str] = (404, "no such session")
    """The status and body for unknown sessions."""
    queries: set[str] = field(default_factory=set)
    refused: dict[str, Callable[[], web.Response]] = field(default_factory=dict)
    asked: Counter[str] = field(default_factory=Counter)
    sessions: dict[str, int] = field(default_factory=dict)
    """The number of calls in each session."""
    get: Callable[[web.Request], object] | None = None
    announcements: int = 0
    streams: list[asyncio.Event] = field(default_factory=list)

    async def answer(self, request: web.Request) -> web.Response:
        message = await request.json()
        method, session = message.get("method", ""), request.headers.get("Mcp-Session-Id", "")
        self.asked[method] += 1
        self.queries.add(request.rel_url.raw_query_string)
        if (refuse := self.refused.get(method)) is not None:
            return refuse()
        if method == "initialize":
            session = f"s{len(self.sessions)}-{self.tool}"
            self.sessions[session] = 0
        elif method != "server/discover" and session not in self.sessions:
            status, text = self.unknown
            kind = "text/event-stream" if text.startswith("data:") else "application/json"
            return web.Response(status=status, text=text.replace("ID", str(message.get("id"))), content_type=kind)
        if "id" not in message:
            return web.Response(status=202)
        if method == "tools/call":
            self.sessions[session] += 1
        results: dict[str, Json] = {
            "initialize": {
                "protocolVersion": message["params"].get("protocolVersion"),
                "capabilities": {"tools": {}, "prompts": {}},
                "serverInfo": {},
            },
            "ping": {},
            "prompts/list": {"prompts": [{"name": "ask"}]},
            "tools/list": {"tools": [{"name": self.tool, "inputSchema": {"type": "object"}}]},
            "tools/call": {"content": [{"type": "text", "text": str(self.sessions.get(session))}]},
        }
        if method not in results:
            error = {"code": -32601, "message": "Method not found"}
            return web.json_response({"jsonrpc": "2.0", "id": message["id"], "error": error})
        reply = {"jsonrpc": "2.0", "id": message["id"], "result": results[method]}
        return web.json_response(reply, headers={"Mcp-Session-Id": session})

    async def stream(self, request: web.Request) -> web.StreamResponse:
        self.asked["GET"] += 1
        if self.get is None:
            return web.Response(status=405)
        answer = self.get(request)
        return answer if isinstance(answer, web.StreamResponse) else await answer  # type: ignore[misc]

    async def delete(self, _request: web.Request) -> web.Response:
        self.asked["DELETE"] += 1
        return web.Response()

    def restart(self, tool: str) -> None:
        self.tool, self.sessions = tool, {}

    @property
    def application(self) -> web.Application:
        application = web.Application()
        application.router.add_post("/mcp", self.answer)
        application.router.add_get("/mcp", self.stream)
        application.router.add_delete("/mcp", self.delete)
        return application


def entry(port: int, more: str = "") -> str:
    return f"url: 'http://127.0.0.1:{port}/mcp', allow_private: true, prefix: ''{more}"


@asynccontextmanager
async def behind(application: web.Application, folder: Path, more: str = "") -> AsyncIterator[Gateway]:
    async with local_server.listening(application) as port, gateway(config(folder, up=entry(port, more))) as running:
        async with asyncio.timeout(SECONDS):
            yield running


def starting_late(folder: Path, **answers: str) -> str:
    """Return a server that records each start and waits for a file before it responds."""
    server = f"exec {sys.executable} -IS {RAW} '{json.dumps(answers)}'"
    script = f"echo >> {folder}/starts; while [ ! -e {folder}/gate ]; do sleep 0.02; done; {server}"
    return f"command: {json.dumps(['/bin/sh', '-c', script])}, prefix: ''"


@pytest.mark.parametrize(
    ("answers", "revision"),
    [({}, "2025-06-18"), ({"server/discover": ""}, "2025-06-18"), ({"server/discover": MODERN}, "2026-07-28")],
    ids=["legacy", "ignores unknown methods", "modern"],
)
async def test_slow_server_is_started_once(
    answers: dict[str, str], revision: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.upstreams.connecting.PROBE_SECONDS", 0.1)
    asyncio.get_running_loop().call_later(1, (tmp_path / "gate").touch)
    async with asyncio.timeout(SECONDS), gateway(config(tmp_path, up=starting_late(tmp_path, **answers))) as running:
        await until_listed(running, "pid")
        assert state(running, "up")["revision"] == revision
        assert (tmp_path / "starts").read_text() == "\n"


REFUSALS: Final[dict[str, Callable[[web.Request], web.Response]]] = {
    "404": lambda _: web.Response(status=404),
    "400": lambda _: web.Response(status=400, text="No sessionId"),
    "403": lambda _: web.Response(status=403),
    "500": lambda _: web.Response(status=500),
    "204": lambda _: web.Response(status=204),
    "redirect to a page": lambda _: web.Response(status=308, headers={"Location": "/welcome"}),
    "redirect": lambda _: web.Response(status=302, headers={"Location": "https://example.com/login"}),
    "json": lambda _: web.json_response({"jsonrpc": "2.0", "id": None, "error": {"code": -32000, "message": "no"}}),
    "page": lambda _: web.Response(text="<p>Hello", content_type="text/html"),
}


@pytest.mark.parametrize("refusal", REFUSALS)
async def test_other_responses_to_get_mean_no_stream(refusal: str, tmp_path: Path) -> None:
    server = LegacyServer(get=REFUSALS[refusal])
    async with behind(server.application, tmp_path) as running:
        await until_listed(running, "old")
        client = running.memory_client()

        async def is_answered() -> bool:
            return server.asked["GET"] > 0

        await until(is_answered)
        assert [await said(client, "old") for _ in range(3)] == ["1", "2", "3"]
        assert (server.asked["GET"], server.asked["initialize"], server.asked["DELETE"]) == (1, 1, 0)


async def test_lost_get_stream_reveals_a_restart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.upstreams.client.http_link._FIRST_PAUSE", 0.02)
    ended = asyncio.Event()

    async def stream(request: web.Request) -> web.StreamResponse:
        if request.headers["Mcp-Session-Id"] not in server.sessions:
            return web.Response(status=404)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await ended.wait()
        return response

    server = LegacyServer(get=stream)
    async with behind(server.application, tmp_path, ", start: eager") as running:
        await until_listed(running, "old")

        async def is_listening() -> bool:
            return server.asked["GET"] > 0

        await until(is_listening)
        server.restart("new")
        ended.set()
        await until_listed(running, "new")


async def test_lost_session_is_reopened_without_waiting_for_the_backoff(tmp_path: Path) -> None:
    server = LegacyServer()
    async with behind(server.application, tmp_path) as running:
        await until_listed(running, "old")
        held = running.memory_client()
        assert await said(held, "old") == "1"
        server.refused["initialize"] = lambda: web.Response(status=503, text="starting")
        running.app.core.upstreams.servers["up"].pool.circuit._failed_connects = 6  # the next try is in a minute
        assert "next try in" in await said(ada(running), "old")

        server.refused.clear()
        server.restart("old")

        assert await said(held, "old") == "1"


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (400, '{"jsonrpc": "2.0", "error": {"code": -32000, "message": "Bad Request: Server not initialized"}}'),
        (410, ""),
        (422, "unknown session"),
        (401, "Session not found"),
        (401, '{"jsonrpc": "2.0", "id": null, "error": {"code": -32001, "message": "Your session has expired"}}'),
        (200, '{"jsonrpc": "2.0", "id": null, "error": {"code": -32001, "message": "Session not found"}}'),
        (200, '{"jsonrpc": "2.0", "id": ID, "error": {"code": -32001, "message": "Unknown session id s0"}}'),
        (200, 'data: {"jsonrpc": "2.0", "id": ID, "error": {"code": -32001, "message": "Session terminated"}}\n\n'),
    ],
)
async def test_error_that_names_a_lost_session_reopens_it(status: int, text: str, tmp_path: Path) -> None:
    server = LegacyServer(unknown=(status, text))
    async with behind(server.application, tmp_path) as running:
        await until_listed(running, "old")
        client = running.memory_client()
        assert await said(client, "old") == "1"

        server.restart("old")

        assert await said(client, "old") == "1"


@pytest.mark.parametrize(
    ("status", "headers", "text"),
    [
        (401, {}, "Unauthorized"),
        (401, {}, "Your session token has expired"),
        (401, {"WWW-Authenticate": 'Bearer error="invalid_token"'}, "Session expired"),
        (200, {}, '{"jsonrpc": "2.0", "id": null, "error": {"code": -32001, "message": "Request timed out"}}'),
        (200, {}, '{"jsonrpc": "2.0", "id": null, "error": {"code": -32603, "message": "Session not found"}}'),
    ],
)
async def test_other_errors_keep_the_session(status: int, headers: dict[str, str], text: str, tmp_path: Path) -> None:
    server = LegacyServer()
    async with behind(server.application, tmp_path) as running:
        await until_listed(running, "old")
        client = running.memory_client()
        assert await said(client, "old") == "1"
        server.refused["tools/call"] = lambda: web.Response(status=status, text=text, headers=headers)

        with suppress(RpcError):
            await said(client, "old")

        server.refused.clear()
        assert await said(client, "old") == "2"
        assert server.asked["initialize"] == 1


async def test_session_that_is_lost_again_at_once_is_reopened_only_once(tmp_path: Path) -> None:
    server = LegacyServer()
    async with behind(server.application, tmp_path) as running:
        await until_listed(running, "old")
        client = running.memory_client()
        server.refused["tools/call"] = lambda: web.Response(status=401, text="Session not found")
        assert "session has ended" in await said(client, "old")
        assert server.asked["tools/call"] == 2


async def test_url_can_have_a_query(tmp_path: Path) -> None:
    server = LegacyServer()
    async with local_server.listening(server.application) as port:
        keyed = entry(port).replace("/mcp", "/mcp?key=k1&only=a,b")
        async with asyncio.timeout(SECONDS), gateway(config(tmp_path, up=keyed)) as running:
            await until_listed(running, "old")
    assert server.queries == {"key=k1&only=a,b"}


def test_simultaneous_failures_increase_the_backoff_once() -> None:
    circuit = CircuitBreaker("up")
    for _ in range(8):
        circuit.connect_failed("connection refused")
    assert circuit.seconds_to_next_try == 1


def unsupported(*supported: str, code: int = -32022) -> web.Response:
    error = {"code": code, "message": "Unsupported protocol version", "data": {"supported": [*supported]}}
    return web.json_response({"jsonrpc": "2.0", "id": None, "error": error}, status=400)


async def test_supported_modern_revision_in_an_error_is_used(tmp_path: Path) -> None:
    async def answer(request: web.Request) -> web.Response:
        message = await request.json()
        asked.append(message["method"])
        if len(asked) == 1:
            return unsupported("2099-01-01", "2026-07-28")
        assert request.headers["MCP-Protocol-Version"] == "2026-07-28"
        result = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}, "tools": [{"name": "new"}]}
        return web.json_response({"jsonrpc": "2.0", "id": message["id"], "result": result})

    asked: list[str] = []
    application = web.Application()
    application.router.add_post("/mcp", answer)
    async with behind(application, tmp_path) as running:
        await until_listed(running, "new")
        assert asked[:3] == ["server/discover", "server/discover", "tools/list"]


async def test_supported_legacy_revision_in_an_error_is_used(tmp_path: Path) -> None:
    server = LegacyServer()

    def refuse_once() -> web.Response:
        del server.refused["initialize"]
        return unsupported("2025-03-26", "2025-06-18", code=-32602)

    server.refused = {"initialize": refuse_once, "server/discover": lambda: unsupported("2025-06-18")}
    async with behind(server.application, tmp_path) as running:
        await until_listed(running, "old")
        assert state(running, "up")["revision"] == "2025-06-18"


@pytest.mark.parametrize("status", [400, 401, 403, 404, 405, 415, 429, 500])
async def test_refused_probe_falls_back_to_initialize(status: int, tmp_path: Path) -> None:
    server = LegacyServer(refused={"server/discover": lambda: web.Response(status=status, text="no")})
    async with behind(server.application, tmp_path) as running:
        await until_listed(running, "old")


@pytest.mark.parametrize("end", ["exit 3", "sleep 600"])
async def test_output_that_is_not_mcp_is_quoted(end: str, tmp_path: Path) -> None:
    program = f"echo 'Set TOKEN first.'; echo more; {end}"
    entry = f"command: {json.dumps(['/bin/sh', '-c', program])}, connect_timeout: 500ms"
    async with asyncio.timeout(SECONDS), gateway(config(tmp_path, up=entry)) as running:

        async def is_told() -> bool:
            return 'starts with "Set TOKEN first."' in str(state(running, "up").get("reason"))

        await until(is_told)


async def test_error_of_the_known_handshake_is_reported() -> None:
    server = LegacyServer(refused={"initialize": lambda: web.Response(status=500, text="the disk is full")})
    async with http_endpoint(server.application, "/mcp") as endpoint:
        spec = ServerSpec(links={"http": lambda: HttpLink(endpoint)})
        connecting = ConnectionAttempt(spec=spec, listener=IgnoringListener(), capabilities={})
        with pytest.raises(UpstreamError, match="the disk is full"):
            await connecting.connect(era=None, known=("http", Era.LEGACY), seconds=SECONDS)
    assert server.asked["server/discover"] == 1


async def test_failed_list_is_read_again(tmp_path: Path) -> None:
    server = LegacyServer(refused={"prompts/list": lambda: web.Response(status=500, text="busy")})
    async with behind(server.application, tmp_path) as running:
        await until_listed(running, "old")
        assert state(running, "up")["missing"] == {"prompts": "responds with 500 Internal Server Error: busy"}
        server.refused.clear()

        async def is_whole() -> bool:
            prompts = (await running.memory_client().request("prompts/list"))["prompts"]
            return bool(prompts and state(running, "up")["state"] == "up")

        await until(is_whole)


async def test_endless_announcements_are_damped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.upstreams.server.SETTLE_SECONDS", 0.01)
    sent = 0

    async def stream(request: web.Request) -> web.StreamResponse:
        nonlocal sent
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        with suppress(ConnectionError):
            while True:
                sent += 1
                await response.write(b'data: {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}\n\n')
                await asyncio.sleep(0.005)
        return response

    server = LegacyServer(get=stream)
    async with behind(server.application, tmp_path) as running:
        await until_listed(running, "old")

        async def are_many() -> bool:
            return sent >= 400

        await until(are_many)
        assert server.asked["tools/list"] < 20


async def test_lists_of_remembered_http_server_are_read_once(tmp_path: Path) -> None:
    server = LegacyServer()
    async with local_server.listening(server.application) as port, asyncio.timeout(SECONDS):
        path, kept = config(tmp_path, up=entry(port)), tmp_path / "state"
        async with gateway(path, state=kept) as running:
            await until_listed(running, "old")
        server.tool = "new"
        server.asked.clear()
        async with gateway(path, state=kept) as running:
            await until_listed(running, "new")
            assert server.asked["tools/list"] == 1


async def test_failed_connection_of_a_cancelled_call_leaves_no_unretrieved_exception() -> None:
    async def never(_request: web.Request) -> web.Response:
        await asyncio.Event().wait()
        raise AssertionError("never set")

    problems: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: problems.append(context))
    application = web.Application()
    application.router.add_post("/mcp", never)
    upstream = Upstream.model_validate({"url": "https://example.com", "connect_timeout": "300ms"})
    async with asyncio.timeout(SECONDS), http_endpoint(application, "/mcp") as endpoint:
        spec = ServerSpec(links={"http": lambda: HttpLink(endpoint)})
        pool = SessionPool("up", upstream, spec, listener=IgnoringListener(), starting=asyncio.Semaphore())
        with suppress(TimeoutError):
            async with asyncio.timeout(0.05):
                await pool.session_for(None)

        async def has_failed() -> bool:
            return bool(pool.circuit.reason)

        await until(has_failed)
    gc.collect()
    await asyncio.sleep(0)
    assert problems == []


async def test_readiness_warns_about_server_without_lists(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.app.build.FIRST_LISTS_SECONDS", 0.1)
    async with gateway(config(tmp_path, up=starting_late(tmp_path))) as running:

        async def is_connecting() -> bool:
            return bool(state(running, "up")["state"] == "connecting")

        await until(is_connecting)
        assert running.app.core.health.readiness()["warnings"] == ["the upstream up is connecting"]
        (tmp_path / "gate").touch()
        await until_listed(running, "pid")

        async def is_up() -> bool:
            return "warnings" not in running.app.core.health.readiness()

        await until(is_up)


@pytest.mark.build
async def test_many_children_start_a_few_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.upstreams.source.STARTING", 2)
    log = tmp_path / "log"
    script = f"echo start >> {log}; sleep 0.5; echo ready >> {log}; exec {sys.executable} -IS {ODD} good"
    one = f"command: {json.dumps(['/bin/sh', '-c', script])}, connect_timeout: 3s"
    names = [f"up{number}" for number in range(16)]
    async with gateway(config(tmp_path, **dict.fromkeys(names, one))) as running:
        await until_listed(running, *(f"{name}_work" for name in names))

        async def are_up() -> bool:
            return all(state(running, name)["state"] == "up" for name in names)

        await until(are_up)
    lines = log.read_text().split()
    running_at_once = [lines[:end].count("start") - lines[:end].count("ready") for end in range(len(lines))]
    assert (lines.count("start"), max(running_at_once) <= 3) == (len(names), True)
