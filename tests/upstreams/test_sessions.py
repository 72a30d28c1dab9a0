"""Upstream sessions of clients, and the requests in them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web

from gateway.json_types import JsonObject
from tests import local_server
from tests.behaviour.cells import Cell
from tests.behaviour.conftest import NewClient
from tests.behaviour.inside import product
from tests.behaviour.wires import HttpWire, SseWire
from tests.e2e.daemon import Daemon, serving
from tests.ports import free_port
from tests.programs import is_running
from tests.upstreams.test_apps import tools_of
from tests.upstreams.test_failures import odd
from tests.upstreams.upstream_servers import SERVER, over_stdio
from tests.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="session")

LEGACY = Cell(binding="http", revision="2025-11-25")
MODERN = Cell(binding="http", revision="2026-07-28")
KEY = "a-key-that-is-long-enough-0123456789"


@asynccontextmanager
async def gateway(folder: Path, text: str) -> AsyncIterator[Daemon]:
    config = folder / "config.yaml"
    config.write_text(text, encoding="utf-8")
    async with serving(config, "--http", "127.0.0.1:0", "--state-dir", "none") as daemon:
        yield daemon


@pytest.mark.parametrize("arguments", [("good",), ("good", "modern")], ids=["legacy", "modern"])
@pytest.mark.parametrize(("more", "children"), [("", 2), (", session: per_client", 2), (", session: shared", 1)])
async def test_each_client_has_its_own_session_unless_shared(
    arguments: tuple[str, ...],
    more: str,
    children: int,
    tmp_path: Path,
    processes: AsyncExitStack,
    new_client: NewClient,
) -> None:
    text = f"upstreams: {{odd: {{{odd(*arguments)}{more}}}}}\n"
    daemon = await processes.enter_async_context(gateway(tmp_path, text))
    clients = [await new_client(LEGACY, daemon=daemon) for _ in range(2)]

    answers = {(await client.call("odd_work")).text for client in (*clients, *clients)}

    assert len(answers) == children


async def test_each_modern_principal_has_its_own_child(
    tmp_path: Path, processes: AsyncExitStack, new_client: NewClient
) -> None:
    keys = {name: f"key-of-{name}-0123456789" for name in ("ada", "bob")}
    api_keys = {name: {"secret": secret, "scopes": ["x"]} for name, secret in keys.items()}
    text = f"upstreams: {{odd: {{{odd('good', 'modern')}}}}}\nauth: {{api_keys: {api_keys}}}\n"
    daemon = await processes.enter_async_context(gateway(tmp_path, text))

    async def child_of(name: str) -> str:
        client = await new_client(MODERN, daemon=daemon)
        client.headers["Authorization"] = f"Bearer {keys[name]}"
        return (await client.call("odd_work")).text

    ada, bob, ada_again = [await child_of(name) for name in ("ada", "bob", "ada")]
    assert ada == ada_again != bob


@pytest.mark.parametrize("cell", [MODERN, LEGACY, Cell(binding="http", revision="2024-11-05")], ids=str)
async def test_members_of_wrong_types_are_omitted(
    cell: Cell, tmp_path: Path, processes: AsyncExitStack, new_client: NewClient
) -> None:
    text = f"upstreams: {{odd: {{{odd('mistyped')}}}}}\n"
    client = await new_client(cell, daemon=await processes.enter_async_context(gateway(tmp_path, text)))

    [tool] = [each for each in (await client.ask("tools/list")).result["tools"] if each["name"] == "odd_mistyped"]
    assert tool["inputSchema"] == {"type": "object"}
    *malformed, whole = (await client.call("odd_mistyped")).result["content"]
    assert [block["type"] for block in malformed] == ["text"] * 4
    assert whole == {"type": "text", "text": "whole"}
    got = (await client.ask("prompts/get", {"name": "odd_said"})).result
    assert got["messages"] == [{"role": "user", "content": whole}]


@pytest.mark.parametrize(
    ("cell", "sent", "received"),
    [
        (MODERN, -32002, -32602),
        (MODERN, -32042, -32603),
        (MODERN, -31999, -31999),
        (LEGACY, -32002, -32002),
        (LEGACY, -32022, -32603),
    ],
)
async def test_error_code_is_one_of_the_clients_revision(
    cell: Cell, sent: int, received: int, tmp_path: Path, processes: AsyncExitStack, new_client: NewClient
) -> None:
    text = f"upstreams: {{odd: {{{odd('fail', sent)}}}}}\n"
    client = await new_client(cell, daemon=await processes.enter_async_context(gateway(tmp_path, text)))

    assert (await client.call("odd_work")).error["code"] == received


async def test_changed_roots_are_announced_only_in_the_clients_session(
    tmp_path: Path, processes: AsyncExitStack, new_client: NewClient
) -> None:
    text = f"upstreams: {{odd: {{{odd('roots')}}}}}\n"
    daemon = await processes.enter_async_context(gateway(tmp_path, text))
    roots = {"roots": {"listChanged": True}}
    one, other = [await new_client(LEGACY, capabilities=roots, daemon=daemon) for _ in range(2)]
    assert {(await client.call("odd_roots")).text for client in (one, other)} == {"0 changes"}

    await one.notify("notifications/roots/list_changed")

    async with asyncio.timeout(15):
        while (await one.call("odd_roots")).text != "1 changes":
            await asyncio.sleep(0.02)
    assert (await other.call("odd_roots")).text == "0 changes"


@pytest.mark.parametrize("binding", ["http", "sse"])
async def test_upstream_session_ends_with_the_client_session(
    binding: str, tmp_path: Path, processes: AsyncExitStack, new_client: NewClient
) -> None:
    daemon = await processes.enter_async_context(gateway(tmp_path, f"upstreams: {{odd: {{{odd('good')}}}}}\n"))
    staying, going = [await new_client(Cell(binding=binding, revision="2025-11-25"), daemon=daemon) for _ in range(2)]
    stays, goes = [(await client.call("odd_work")).text for client in (staying, going)]
    assert is_running(pid_in(goes))

    assert isinstance(going.wire, HttpWire | SseWire)
    await going.wire.close()

    await until(lambda: not is_running(pid_in(goes)))
    assert (await staying.call("odd_work")).text == stays


def pid_in(said: str) -> int:
    return int(said.rpartition(" ")[2])


async def test_lists_are_read_with_all_capabilities(
    tmp_path: Path, processes: AsyncExitStack, new_client: NewClient
) -> None:
    asked = tmp_path / "asked"
    daemon = await processes.enter_async_context(gateway(tmp_path, f"upstreams: {{odd: {{{odd('choosy', asked)}}}}}\n"))
    plain, other = [await new_client(LEGACY, daemon=daemon) for _ in range(2)]
    anonymous = await new_client(Cell(binding="http", revision="2026-07-28"), daemon=daemon)

    for client in (plain, anonymous, other):  # each session starts with `list_changed`
        before = len(asked.read_text().splitlines())
        assert (await client.call("odd_work")).text.startswith("did work")
        async with asyncio.timeout(30):
            while client is not anonymous and len(asked.read_text().splitlines()) == before:
                await asyncio.sleep(0.02)

    everything = str(["elicitation", "roots", "sampling"])
    # The lists in client sessions are only compared.
    assert everything == asked.read_text().splitlines()[0]
    assert {*asked.read_text().splitlines()} <= {everything, "[]"}


async def test_max_sessions_is_respected(tmp_path: Path, processes: AsyncExitStack, new_client: NewClient) -> None:
    text = f"upstreams: {{odd: {{{odd('good')}, max_sessions: 1}}}}\n"
    daemon = await processes.enter_async_context(gateway(tmp_path, text))
    clients = [await new_client(LEGACY, daemon=daemon) for _ in range(2)]

    first, second, again = [(await client.call("odd_work")).text for client in (*clients, clients[0])]

    assert first != second
    assert again not in {first, second}  # the least recently used session was closed


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_restarted_upstream_is_used_at_once(era: str, tmp_path: Path) -> None:
    port = free_port()
    text = f"upstreams: {{shelf: {{url: 'http://127.0.0.1:{port}/mcp', era: {era}, allow_private: true}}}}\n"
    async with serving(SERVER, "--http", f"127.0.0.1:{port}", "--state-dir", "none") as upstream:
        await upstream.url()
        async with product(tmp_path, text) as client:
            assert await client.text("shelf_echo", text="one") == "one"
            upstream.process.kill()
            await upstream.exit_code()
            async with serving(SERVER, "--http", f"127.0.0.1:{port}", "--state-dir", "none") as restarted:
                await restarted.url()
                assert await client.text("shelf_echo", text="two") == "two"


async def test_bearer_token_authenticates_at_the_upstream(tmp_path: Path) -> None:
    server = tmp_path / "server.yaml"
    written = SERVER.read_text(encoding="utf-8").replace("[plugins]", f"[{SERVER.parent}/plugins]")
    server.write_text(f"{written}\nauth: {{api_keys: {{gw: {{secret: {KEY}, scopes: [x]}}}}}}\n", encoding="utf-8")
    async with serving(server, "--http", "127.0.0.1:0", "--state-dir", "none") as upstream:
        url = await upstream.url()
        entry = f"url: '{url}', allow_private: true"
        text = f"""
            upstreams:
              right: {{{entry}, auth: {{bearer: {KEY}}}}}
              wrong: {{{entry}, auth: {{bearer: another-{KEY}}}}}
            """
        async with product(tmp_path, text) as client:
            names = [tool["name"] for tool in (await client.request("tools/list"))["tools"]]

            assert await client.text("right_echo", text="in") == "in"
            assert not [name for name in names if name.startswith("wrong_")]


async def test_callers_credentials_are_not_forwarded(tmp_path: Path, new_client: NewClient) -> None:
    seen: list[dict[str, str]] = []

    async def record(request: web.Request) -> web.Response:
        seen.append({name.lower(): value for name, value in request.headers.items()})
        body: JsonObject = await request.json()
        tools = [{"name": "look", "inputSchema": {"type": "object"}}]
        results = {
            "server/discover": {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}},
            "tools/list": {"tools": tools},
            "tools/call": {"content": [{"type": "text", "text": "seen"}]},
        }
        return web.json_response({"jsonrpc": "2.0", "id": body["id"], "result": results[body["method"]]})

    app = web.Application()
    app.router.add_post("/mcp", record)
    async with local_server.listening(app) as port:
        text = f"""
upstreams:
  web: {{url: "http://127.0.0.1:{port}/mcp", allow_private: true, forward_headers: [X-Team], headers: {{X-Own: ours}}}}
auth: {{api_keys: {{me: {{secret: {KEY}, scopes: [x]}}}}}}
"""
        async with gateway(tmp_path, text) as daemon:
            client = await new_client(Cell(binding="http", revision="2026-07-28"), daemon=daemon)
            client.headers.update({"Authorization": f"Bearer {KEY}", "X-Team": "ops", "X-Other": "no"})

            assert (await client.call("web_look")).text == "seen"

    assert (seen[-1]["x-team"], seen[-1]["x-own"]) == ("ops", "ours")
    assert (seen[-1]["mcp-method"], seen[-1]["mcp-name"]) == ("tools/call", "look")
    assert not any(KEY in value or name == "x-other" for each in seen for name, value in each.items())


async def test_overrides_and_limits_apply_to_upstream_tools(tmp_path: Path) -> None:
    text = f"""
        upstreams:
          shelf:
            {over_stdio().replace(chr(10), chr(10) + "        ")}
            prefix: my_
            tools:
              include: [add, echo]
              override:
                add: {{name: sum, title: Sum, annotations: {{destructive: false}}, rate_limit: 1/hour,
                       output: {{select: sum}}}}
                echo: {{description: Repeat., confirm: "Really {{{{ text }}}}?"}}
            resources: {{exclude: ["note://*"]}}
            uri_prefix: shelf+
            prompts: false
        """
    async with product(tmp_path, text) as client:
        tools = await tools_of(client, "my_sum", "my_echo")

        assert list(tools) == ["my_sum", "my_echo"]
        assert (tools["my_sum"]["title"], tools["my_sum"]["description"]) == ("Sum", "Add two numbers.")
        assert tools["my_sum"]["annotations"] == {"readOnlyHint": True, "destructiveHint": False}
        assert "outputSchema" not in tools["my_sum"]
        assert tools["my_echo"]["description"] == "Repeat."
        assert await client.text("my_sum", a=1, b=2) == "3"
        assert "1/hour" in await client.text("my_sum", a=1, b=2)
        templates = (await client.request("resources/templates/list"))["resourceTemplates"]
        assert [each["uriTemplate"] for each in templates] == ["shelf+page://{number}"]
        assert (await client.read("shelf+page://4"))["uri"] == "shelf+page://4"
        assert (await client.request("resources/list"))["resources"] == []
        assert (await client.request("prompts/list"))["prompts"] == []
