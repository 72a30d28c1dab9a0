"""Access, confirmation and limits of upstream tools, and the idle, circuit and health states of upstreams."""

import asyncio
import secrets
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import pytest
import pytest_asyncio
from aiohttp import web
from yarl import URL

from gateway.access.identity import Identity
from gateway.app.gateway import Gateway
from gateway.errors import ErrorCode, RpcError
from gateway.json_types import Json, JsonObject
from gateway.transports.memory import MemoryClient
from tests import local_server
from tests.behaviour.cells import Cell
from tests.behaviour.client import initialize_params
from tests.behaviour.conftest import NewClient
from tests.e2e.daemon import Daemon
from tests.upstreams.test_failures import call, config, gateway, odd, said, tools, until, until_listed
from tests.upstreams.test_sessions import LEGACY
from tests.upstreams.test_sessions import gateway as daemon_of
from tests.upstreams.upstream_servers import until_offered

pytestmark = pytest.mark.asyncio(loop_scope="session")

KEYS = {"ada": "key-of-ada-0123456789", "bob": "key-of-bob-0123456789"}
MODERN = Cell(binding="http", revision="2026-07-28")


@dataclass
class ModernServer:
    """A modern upstream over HTTP. Its methods can return 500 or close the connection."""

    port: int = 0
    broken: set[str] = field(default_factory=set)
    closed: set[str] = field(default_factory=set)
    asked: Counter[str] = field(default_factory=Counter)
    endless: bool = False
    """Whether the list of tools never ends."""
    cursor_suffix: str = ""
    """Added to the cursors of an endless list."""
    more_of_each: dict[str, Json] = field(default_factory=dict)
    """Other members of the tools."""
    text: str = "seen"
    meta: dict[str, Json] = field(default_factory=dict)
    """`_meta` of results."""
    capabilities: dict[str, Json] = field(default_factory=lambda: {"tools": {}})
    reply: str | None = None
    """The response to calls, with `ID` in place of the id."""
    held: str = "tools/call"
    """The method whose requests wait for `released`."""
    begun: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when such a request has arrived."""
    released: asyncio.Event | None = None
    """Set to release the requests."""

    async def answer(self, request: web.Request) -> web.Response:
        body: JsonObject = await request.json()
        method = body["method"]
        self.asked[method] += 1
        if method in self.broken:
            return web.Response(status=500, text="out of order")
        if method in self.closed:
            assert request.transport is not None
            request.transport.abort()
        if method == "subscriptions/listen":
            error = {"code": -32603, "message": "busy"}
            return web.json_response({"jsonrpc": "2.0", "id": body["id"], "error": error}, status=500)
        name = f"look_{self.asked[method] - 1}" if self.endless else "look"
        more = {"nextCursor": name + self.cursor_suffix} if self.endless else {}
        if method == self.held:
            self.begun.set()
            if self.released is not None:
                await self.released.wait()
        if method == "tools/call" and self.reply is not None:
            return web.Response(text=self.reply.replace("ID", str(body["id"])), content_type="application/json")
        results: dict[str, Json] = {
            "server/discover": {"supportedVersions": ["2026-07-28"], "capabilities": self.capabilities},
            "tools/list": {"tools": [{"name": name, "inputSchema": {"type": "object"}, **self.more_of_each}], **more},
            "tools/call": {"content": [{"type": "text", "text": self.text}], "_meta": self.meta},
        }
        return web.json_response({"jsonrpc": "2.0", "id": body["id"], "result": results[method]})

    @property
    def entry(self) -> str:
        return f"url: 'http://127.0.0.1:{self.port}/mcp', type: http, era: modern, allow_private: true"


@pytest_asyncio.fixture(loop_scope="session")
async def server() -> AsyncIterator[ModernServer]:
    found = ModernServer()
    app = web.Application()
    app.router.add_post("/mcp", found.answer)
    async with local_server.listening(app) as found.port:
        yield found


@pytest.fixture(autouse=True)
def looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.upstreams.server._CHECK_SECONDS", 0.02)


@dataclass
class RestartingServer:
    """A legacy upstream over HTTP without a GET stream."""

    port: int = 0
    tool: str = "old"
    is_full: bool = False
    """Whether new sessions are refused."""
    sessions: set[str] = field(default_factory=set)
    status: int = 200
    """Returns the response to a call."""
    calls: int = 0

    async def answer(self, request: web.Request) -> web.Response:
        body: JsonObject = await request.json()
        method, session = body["method"], request.headers.get("Mcp-Session-Id")
        if method == "initialize":
            if self.is_full:
                return web.Response(status=500, text="full")
            self.sessions.add(session := f"session-{secrets.token_hex(8)}")
        elif session not in self.sessions:
            return web.Response(status=404)
        if "id" not in body:
            return web.Response(status=202)
        if method == "tools/call":
            self.calls += 1
            if self.status != 200:
                return web.Response(status=self.status, text="not like this")
        results: dict[str, Json] = {
            "initialize": {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {}},
            "tools/list": {"tools": [{"name": self.tool, "inputSchema": {"type": "object"}}]},
            "tools/call": {"content": [{"type": "text", "text": "seen"}]},
            "ping": {},
        }
        reply = {"jsonrpc": "2.0", "id": body["id"], "result": results[method]}
        return web.json_response(reply, headers={"Mcp-Session-Id": str(session)})

    def restart(self, *, tool: str) -> None:
        self.tool = tool
        self.sessions.clear()


def ada(running: Gateway) -> MemoryClient:
    """Return a client with a principal, and therefore with its own session."""
    return MemoryClient(running.app.core.dispatcher, identity=Identity(principal="ada"))


def state(running: Gateway, name: str) -> JsonObject:
    found: JsonObject = running.status()["upstreams"][name]
    return found


@pytest.mark.parametrize("cell", [MODERN, Cell(binding="http", revision="2024-11-05")], ids=str)
async def test_caller_without_scope_cannot_list_or_call(
    cell: Cell, tmp_path: Path, processes: AsyncExitStack, new_client: NewClient
) -> None:
    keys = f"ada: {{secret: {KEYS['ada']}, scopes: [dev, ops]}}, bob: {{secret: {KEYS['bob']}, scopes: [dev]}}"
    access = "access: {scopes: [dev]}, tools: {override: {grow: {access: {scopes: [ops]}}}}"
    text = f"auth: {{api_keys: {{{keys}}}}}\nupstreams: {{odd: {{{odd('good')}, {access}}}}}\n"
    daemon = await processes.enter_async_context(daemon_of(tmp_path, text))
    listed, answers = {}, {}
    for name, key in KEYS.items():
        client = await new_client(cell, initializes=False, daemon=daemon)
        client.headers["Authorization"] = f"Bearer {key}"
        if not cell.is_modern:
            await client.ask("initialize", initialize_params(cell.revision))
            await client.notify("notifications/initialized")
        listed[name] = [tool["name"] for tool in (await client.ask("tools/list")).result["tools"]]
        answers[name] = (await client.call("odd_grow")).message

    assert listed == {"ada": ["odd_work", "odd_grow", "odd_die"], "bob": ["odd_work", "odd_die"]}
    assert answers["ada"]["result"]["content"][0]["text"].startswith("did grow")
    assert "did grow" not in str(answers["bob"])


@pytest.mark.parametrize("action", ["accept", "decline"])
async def test_only_confirmed_calls_reach_the_upstream(
    action: str, tmp_path: Path, new_client: NewClient, server: ModernServer
) -> None:
    override = 'tools: {override: {look: {confirm: "Really look?"}}}'
    async with daemon_of(tmp_path, f"upstreams: {{web: {{{server.entry}, {override}}}}}\n") as daemon:
        client = await new_client(MODERN, capabilities={"elicitation": {"form": {}}}, daemon=daemon)
        client.respond = lambda *_: {"action": action} | ({"content": {"confirm": True}} if action == "accept" else {})

        answer = await client.converse("tools/call", {"name": "web_look", "arguments": {}})

        assert "Really look?" in str(client.asked), answer
    assert (answer.text == "seen", server.asked["tools/call"]) == ((True, 1) if action == "accept" else (False, 0))


async def test_idle_lazy_server_is_stopped_and_restarted_by_a_call(tmp_path: Path) -> None:
    async with gateway(config(tmp_path, odd=odd("good") + ", idle: 100ms")) as running:
        client = running.memory_client()
        first = await said(client, "odd_work")

        async def is_idle() -> bool:
            return bool(state(running, "odd")["state"] == "idle")

        await until(is_idle)
        assert (await said(client, "odd_work")) != first  # another process
        assert "reason" not in state(running, "odd")


async def test_five_failed_calls_open_the_circuit_and_a_probe_closes_it(tmp_path: Path, server: ModernServer) -> None:
    async with gateway(config(tmp_path, web=server.entry)) as running:
        await running.start()
        client = running.memory_client()
        server.closed = {"tools/call", "server/discover"}
        for _ in range(5):
            assert "closed the connection" in str(await call(client, "web_look"))

        refused = await said(client, "web_look")

        assert refused.startswith("web cannot be reached: ")
        assert "next try in " in refused
        assert server.asked["tools/call"] == 5
        assert state(running, "web")["state"] in {"degraded", "backing_off", "connecting"}
        server.closed = set()

        async def is_up() -> bool:
            return bool(state(running, "web")["state"] == "up")

        await until(is_up)
        assert await said(client, "web_look") == "seen"


async def test_readiness_warns_about_unreachable_upstream(tmp_path: Path) -> None:
    silent = "command: [sleep, '600'], start: eager, connect_timeout: 500ms"
    async with gateway(config(tmp_path, silent=silent)) as running:
        await running.start()

        async def is_tried_again() -> bool:
            shown = state(running, "silent")
            return shown["state"] == "connecting" and "reason" in shown

        await until(is_tried_again)
        assert running.app.core.health.readiness()["warnings"] == ["the upstream silent is connecting"]


async def test_server_that_crashes_in_each_call_opens_the_circuit(tmp_path: Path) -> None:
    async with gateway(config(tmp_path, odd=odd("good"))) as running:
        client = running.memory_client()
        for _ in range(5):
            assert (await said(client, "odd_die")).startswith("odd: exited with code 3")

        assert running.app.core.upstreams.servers["odd"].pool.circuit.is_open

        async def works_again() -> bool:
            return (await said(client, "odd_work")).startswith("did work")

        await until(works_again)


async def test_quiet_eager_server_is_probed(tmp_path: Path, server: ModernServer) -> None:
    async with gateway(config(tmp_path, web=f"{server.entry}, start: eager, health: 50ms")) as running:
        await running.start()

        async def was_asked_often() -> bool:
            return server.asked["server/discover"] >= 4

        await until(was_asked_often)
        assert state(running, "web")["state"] == "up"
        server.broken = {"server/discover"}

        async def is_told() -> bool:
            return "out of order" in state(running, "web").get("reason", "")

        await until(is_told)
        assert server.asked["tools/call"] == 0


async def test_refused_listen_request_is_repeated_and_lists_are_read_again(
    tmp_path: Path, server: ModernServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.upstreams.client.session._RELISTEN_SECONDS", 0.02)
    server.capabilities = {"tools": {"listChanged": True}}
    async with gateway(config(tmp_path, web=server.entry)) as running:
        await running.start()

        async def is_asked_again() -> bool:
            return server.asked["subscriptions/listen"] > 2 and server.asked["tools/list"] > 1

        await until(is_asked_again)
        assert state(running, "web")["state"] == "up"


async def test_endless_list_is_truncated_and_long_body_is_rejected(
    tmp_path: Path, server: ModernServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.upstreams.server_lists.MAX_ITEMS", 5)
    monkeypatch.setattr("gateway.upstreams.client.http_link.MAX_BODY", 2**20)
    monkeypatch.setattr("gateway.upstreams.client.stdio_link.MAX_LINE", 2**20)
    server.endless, server.text = True, "x" * (2**20 + 1)
    entries = {"web": server.entry, "long": odd("long"), "good": odd("good")}
    async with gateway(config(tmp_path, **entries)) as running:
        await running.start()
        client = running.memory_client()
        listed = [tool["name"] for tool in (await client.request("tools/list"))["tools"]]

        assert listed == [*(f"web_look_{number}" for number in range(5)), "good_work", "good_grow", "good_die"]
        assert state(running, "web")["missing"] == {"tools": "truncated after 5 entries"}
        assert state(running, "web")["state"] == "degraded"
        assert "sent more than 1 MiB" in await said(client, "web_look_0")

        async def is_told() -> bool:
            return "writes a line of more than 1 MiB" in state(running, "long").get("reason", "")

        await until(is_told)
        assert (await said(client, "good_work")).startswith("did work")


async def test_lists_that_are_too_large_together_are_truncated(
    tmp_path: Path, server: ModernServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.upstreams.server_lists.MAX_BYTES", 10_000)
    server.endless, server.more_of_each = True, {"description": "x" * 3000}
    async with gateway(config(tmp_path, web=server.entry, good=odd("good"))) as running:
        await until_listed(running, "web_look_2", "good_work")

        assert "web_look_3" not in await tools(running.memory_client())
        assert "all lists together" in state(running, "web")["missing"]["tools"]
        assert server.asked["tools/list"] == 4


async def test_cursors_count_as_part_of_the_lists(
    tmp_path: Path, server: ModernServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.upstreams.server_lists.MAX_BYTES", 10_000)
    server.endless, server.cursor_suffix = True, "x" * 9000
    async with gateway(config(tmp_path, web=server.entry, good=odd("good"))) as running:
        await until_listed(running, "web_look_0", "good_work")
        assert "all lists together" in state(running, "web")["missing"]["tools"]
        assert server.asked["tools/list"] == 2


async def test_error_for_deeply_nested_result_names_no_request_limit(tmp_path: Path, server: ModernServer) -> None:
    server.meta = {}
    for _ in range(200):
        server.meta = {"deeper": server.meta}
    async with gateway(config(tmp_path, web=server.entry)) as running:
        await until_listed(running, "web_look")
        with pytest.raises(RpcError, match=r"nested more than 128 levels deep$"):
            await call(running.memory_client(), "web_look")


@pytest.mark.parametrize("start", ["lazy", "eager, health: 100ms"])
async def test_lists_are_read_again_after_restart_despite_stale_sessions(
    start: str, tmp_path: Path, processes: AsyncExitStack, new_client: NewClient
) -> None:
    server = await restarting_server(processes)
    entry = f"url: 'http://127.0.0.1:{server.port}/mcp', era: legacy, allow_private: true, start: {start}"
    daemon = await processes.enter_async_context(daemon_of(tmp_path, f"upstreams: {{web: {{{entry}}}}}\n"))
    idle, busy = await new_client(LEGACY, daemon=daemon), await new_client(MODERN, daemon=daemon)
    for client in (busy, idle):
        assert (await client.call("web_old")).text == "seen"

    server.restart(tool="new")

    assert (await busy.call("web_old")).text == "seen"
    await until_offered(daemon, "web_new")
    assert (await busy.call("web_new")).text == "seen"
    found = await entry_of(daemon)
    assert found["state"] == "up"
    assert found["restarts"] > 0
    assert "reason" not in found


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        ('{"jsonrpc": "2.0", "id": ID, "result": {', "without a JSON-RPC response to the request"),
        ('{"jsonrpc": "2.0", "id": "another", "result": {}}', "without a JSON-RPC response to the request"),
        ('{"jsonrpc": "2.0", "id": ID, "result": {"resultType": "input_required"}}', "requires input"),
        ('{"jsonrpc": "2.0", "id": ID, "result": {"resultType": "of tomorrow"}}', "a result of an unknown type"),
        ('{"jsonrpc": "2.0", "id": ID, "result": {"resultType": ["complete"]}}', "a result of an unknown type"),
    ],
)
async def test_invalid_result_is_described(reply: str, expected: str, tmp_path: Path, server: ModernServer) -> None:
    server.reply = reply
    async with gateway(config(tmp_path, web=server.entry)) as running:
        await until_listed(running, "web_look")
        assert expected in await said(running.memory_client(), "web_look")


async def test_error_code_is_an_integer(tmp_path: Path, server: ModernServer) -> None:
    server.reply = '{"jsonrpc": "2.0", "id": ID, "error": {"code": true, "message": "out of paper"}}'
    async with gateway(config(tmp_path, web=server.entry)) as running:
        await until_listed(running, "web_look")
        with pytest.raises(RpcError, match="out of paper") as raised:
            await call(running.memory_client(), "web_look")
        assert raised.value.code == ErrorCode.INTERNAL_ERROR


@pytest.mark.parametrize("status", [413, 429])
async def test_refused_requests_keep_the_session_and_other_calls(
    status: int, tmp_path: Path, processes: AsyncExitStack, new_client: NewClient
) -> None:
    server = await restarting_server(processes)
    entry = f"url: 'http://127.0.0.1:{server.port}/mcp', era: legacy, allow_private: true, session: shared"
    daemon = await processes.enter_async_context(daemon_of(tmp_path, f"upstreams: {{web: {{{entry}}}}}\n"))
    client = await new_client(MODERN, daemon=daemon)
    await client.call("web_old")
    sessions = {*server.sessions}

    server.status = status
    refused = [(await client.call("web_old")).text for _ in range(6)]
    server.status = 200

    assert all(text.startswith(f"web responds with {status} ") and text.endswith("not like this") for text in refused)
    assert (await client.call("web_old")).text == "seen"
    assert server.sessions == sessions
    assert server.calls == 8


async def test_server_that_refuses_new_sessions_is_degraded(
    tmp_path: Path, processes: AsyncExitStack, new_client: NewClient
) -> None:
    server = await restarting_server(processes)
    entry = f"url: 'http://127.0.0.1:{server.port}/mcp', era: legacy, allow_private: true"
    daemon = await processes.enter_async_context(daemon_of(tmp_path, f"upstreams: {{web: {{{entry}}}}}\n"))
    known, late = [await new_client(LEGACY, daemon=daemon) for _ in range(2)]
    assert (await known.call("web_old")).text == "seen"
    server.is_full = True

    assert "web cannot be reached: responds with 500" in (await late.call("web_old")).text

    assert (await entry_of(daemon))["state"] == "degraded"
    assert (await known.call("web_old")).text == "seen"


async def restarting_server(processes: AsyncExitStack) -> RestartingServer:
    server, app = RestartingServer(), web.Application()
    app.router.add_post("/mcp", server.answer)
    server.port = await processes.enter_async_context(local_server.listening(app))
    return server


async def entry_of(daemon: Daemon) -> JsonObject:
    async with aiohttp.ClientSession() as http:
        status = await (await http.get(URL(await daemon.url()).with_path("/-/status"))).json()
    found: JsonObject = status["upstreams"]["web"]
    return found


@pytest.mark.parametrize("held", ["tools/call", "server/discover"], ids=["called", "connecting"])
@pytest.mark.parametrize("entries", [{"web": odd("good")}, {}], ids=["changed", "removed"])
async def test_open_calls_finish_on_their_server_after_reload(
    tmp_path: Path, server: ModernServer, entries: dict[str, str], held: str
) -> None:
    async with gateway(config(tmp_path, web=f"{server.entry}, session: per_client")) as running:
        await until_listed(running, "web_look")
        server.held, server.begun, server.released = held, asyncio.Event(), asyncio.Event()
        calling = asyncio.create_task(said(ada(running), "web_look"))
        async with asyncio.timeout(20):
            await server.begun.wait()
        config(tmp_path, **entries)
        await running.app.reloads.reload()
        following = running.app.core.pipeline._following
        assert following is not None
        await following
        server.released.set()
        assert await calling == "seen"


async def test_lists_are_read_in_a_client_session_if_max_sessions_is_reached(
    tmp_path: Path, server: ModernServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.upstreams.server._CHECK_SECONDS", 0.0)
    entry = f"{server.entry}, session: per_client, max_sessions: 1, start: eager"
    async with gateway(config(tmp_path, web=entry)) as running:
        await until_listed(running, "web_look")
        server.held, server.begun, server.released = "server/discover", asyncio.Event(), asyncio.Event()
        calling = asyncio.create_task(said(ada(running), "web_look"))
        async with asyncio.timeout(20):
            await server.begun.wait()
        for _ in range(100):  # each look needs a session
            await asyncio.sleep(0)
        assert "upstream web" in [task.get_name() for task in asyncio.all_tasks()]
        server.released.set()
        assert await calling == "seen"


@pytest.mark.parametrize("session", ["per_client", "shared"])
async def test_tools_of_only_one_client_session_are_reported(session: str, tmp_path: Path) -> None:
    async with gateway(config(tmp_path, odd=f"{odd('good')}, session: {session}")) as running:
        await until_listed(running, "odd_grow")
        await call(ada(running), "odd_grow")

        async def is_known() -> bool:
            listed = "odd_more_3" in await tools(running.memory_client())
            noted = "`more_3`" in str(state(running, "odd").get("note"))
            return (listed, noted) == (session == "shared", session != "shared")

        await until(is_known)
