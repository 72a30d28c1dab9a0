"""Real servers behind the gateway, for clients of each revision and transport.

Each request is also sent directly to the server. The results may differ only in names, URIs, and members that the
client's revision lacks.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Final

import aiohttp
import pytest
import pytest_asyncio

from gateway.app.gateway import Gateway
from gateway.config.settings import read_settings
from gateway.errors import RpcError
from gateway.json_types import Json
from gateway.wire import meta
from tests.behaviour.cells import CELLS as ALL_CELLS
from tests.behaviour.cells import LATEST, LATEST_LEGACY, STDIO, Cell
from tests.behaviour.client import Client, listed
from tests.behaviour.conftest import client_factory
from tests.behaviour.following import Listener
from tests.behaviour.wires import HttpWire
from tests.conformance.wire_schemas import WireSchemas
from tests.e2e.daemon import Daemon, serving
from tests.upstreams.real_servers import (
    SECONDS,
    RealServer,
    from_npm,
    from_pypi,
    on_fastmcp,
    on_python_sdk,
    on_typescript_sdk,
    prepare,
    running,
)
from tests.upstreams.real_steps import (
    ADDED_PREFIX,
    LISTS,
    ON_SDKS,
    PROGRESS,
    STEPS,
    UPDATES,
    USES_OF,
    DirectResults,
    ask_directly,
    belongs,
    cut,
    located,
    plain,
    renamed,
    without_numbers,
)
from tests.upstreams.upstream_servers import until_offered
from tests.waiting import until

pytestmark = [pytest.mark.build, pytest.mark.asyncio(loop_scope="module")]

SHARED: Final = ", session: shared"
SERVERS: Final[Mapping[str, RealServer]] = {
    "every": RealServer(command=from_npm("everything", "streamableHttp"), transport="http"),
    "files": RealServer(command=from_npm("filesystem", "{data}/files"), keys=SHARED),
    "memory": RealServer(command=from_npm("memory"), keys=SHARED),
    "clock": RealServer(command=from_pypi("mcp_server_time"), keys=SHARED),
    "git": RealServer(command=from_pypi("mcp_server_git"), keys=SHARED),
    "sdk1": RealServer(command=on_python_sdk(1, "streamable-http"), transport="http"),
    "sdk1sse": RealServer(command=on_python_sdk(1, "sse"), transport="sse"),
    "sdk2": RealServer(command=on_python_sdk(2, "streamable-http"), transport="http"),
    "typescript": RealServer(command=on_typescript_sdk("http"), transport="http"),
    "fast": RealServer(command=on_fastmcp("http"), transport="http"),
}
CELLS: Final = [cell for cell in ALL_CELLS if cell.is_http or cell.revision in {LATEST_LEGACY, LATEST}]
"""Each revision over HTTP, and the newest of both eras over each binding."""
_NUMBERS: Final = count(1)


@dataclass(frozen=True, kw_only=True)
class RealServers:
    """All servers, the file, and the results without the gateway."""

    config: Path
    data: Path
    own: Mapping[str, DirectResults]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def servers(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RealServers]:
    data = tmp_path_factory.mktemp("real")
    prepare(data)
    async with AsyncExitStack() as stack:
        starting = [stack.enter_async_context(running(name, server, data)) for name, server in SERVERS.items()]
        running_servers = await asyncio.gather(*starting)
        config = data / "config.yaml"
        config.write_text("upstreams:\n" + "".join(server.entry for server in running_servers), encoding="utf-8")
        own = {server.name: await ask_directly(server, data) for server in running_servers}  # one start at a time
        yield RealServers(config=config, data=data, own=own)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def daemon(servers: RealServers) -> AsyncIterator[Daemon]:
    async with serving(servers.config, "--http", "127.0.0.1:0", "--state-dir", "none") as daemon:
        yield daemon


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=CELLS, ids=str)
async def listening_client(
    request: pytest.FixtureRequest, servers: RealServers, daemon: Daemon, schemas: WireSchemas | None
) -> AsyncIterator[Listener]:
    """The cell's client, which listens for notifications outside of requests."""
    cell: Cell = request.param
    async with AsyncExitStack() as stack:
        http = await stack.enter_async_context(aiohttp.ClientSession())
        if cell.binding == STDIO:
            daemon = await stack.enter_async_context(serving(servers.config, "--stdio", "--state-dir", "none"))
        new_client = await stack.enter_async_context(client_factory("", http, schemas))
        client = await new_client(cell, daemon=daemon)
        async with asyncio.timeout(SECONDS):  # slow servers are announced later
            while missing(await listed(client, "tools/list", "tools")):
                await asyncio.sleep(0.2)
        yield await listening(client)


async def listening(client: Client) -> Listener:
    uris = [f"{name}+{uri}" for name, (uri, _) in UPDATES.items()]
    if client.cell.is_modern:
        client.envelope[meta.META_LOG_LEVEL] = "info"
        wanted = {"toolsListChanged": True, "resourceSubscriptions": uris}
        return Listener(client=client, listen=await client.start("subscriptions/listen", {"notifications": wanted}))
    await client.ask("logging/setLevel", {"level": "info"})
    if isinstance(client.wire, HttpWire):
        await client.wire.listen()
    for uri in uris:
        await client.ask("resources/subscribe", {"uri": uri})
    return Listener(client=client)


@pytest.fixture
def client(listening_client: Listener) -> Client:
    return listening_client.client


@pytest.mark.parametrize("name", SERVERS)
async def test_steps_cover_all_primitives_of_the_servers(servers: RealServers, name: str) -> None:
    own = servers.own[name]
    needed = {LISTS[member][0] for member, entries in own.lists.items() if entries}
    needed |= {"completion/complete"} if "completions" in own.capabilities else set()
    asked = {step.method for step in STEPS[name]}
    reads = sum(step.method == "resources/read" for step in STEPS[name])

    assert {method for method in needed if not asked & USES_OF[method]} == set()
    assert reads >= sum(bool(own.lists[member]) for member in ("resources", "resourceTemplates"))
    assert bool(own.capabilities.get("resources", {}).get("subscribe")) <= (name in UPDATES)
    assert ("logging" in own.capabilities) <= (name in {*ON_SDKS, "every"})  # `every` logs at random times


@pytest.mark.parametrize("name", SERVERS)
async def test_lists_equal_those_of_the_server(client: Client, servers: RealServers, name: str) -> None:
    revision = client.cell.revision
    for member, (method, without) in LISTS.items():
        expected = [plain(without(entry, revision), name) for entry in servers.own[name].lists[member]]
        ours = [entry for entry in await listed(client, method, member) if belongs(entry, name)]
        seen = [plain({**entry, "name": entry["name"].removeprefix(f"{name}_")}, name) for entry in ours]
        assert [entry for entry in seen if not entry["name"].startswith(ADDED_PREFIX)] == expected, (name, member)


@pytest.mark.parametrize("name", SERVERS)
async def test_results_equal_those_of_the_server(client: Client, servers: RealServers, name: str) -> None:
    for step, own in zip(STEPS[name], servers.own[name].answers, strict=True):
        answer = await client.ask(step.method, renamed(located(step.params, servers.data), name))
        ours, expected = plain(answer.result, name), plain(cut(step, own["result"], client.cell.revision), name)
        assert (without_numbers(ours) if step.varies else ours) == (
            without_numbers(expected) if step.varies else expected
        ), step


async def test_template_with_wildcard_is_read(client: Client) -> None:
    answer = await client.ask("resources/read", {"uri": "fast+tree://a/b/c"})

    assert answer.result["contents"][0]["text"] == "at a/b/c"


async def test_tool_with_required_task_support_is_called(client: Client) -> None:
    answer = await client.call("every_simulate-research-query", topic="cheese")

    assert "cheese" in answer.text


@pytest.mark.parametrize("name", PROGRESS)
async def test_progress_is_relayed(client: Client, name: str) -> None:
    step = PROGRESS[name]
    begun = await client.begin(f"{name}_{step.params['name']}", token=f"to {name}", **step.params["arguments"])
    await begun.answer()

    assert [each["progress"] for each in begun.seen("notifications/progress")] == [1, 2, 3]


@pytest.mark.parametrize("name", ON_SDKS)
async def test_log_messages_have_the_name_of_the_server(client: Client, name: str) -> None:
    begun = await client.begin(f"{name}_say", text="out of cheese")
    message = await begun.notification("notifications/message")
    await begun.answer()

    assert message["level"] == "warning"
    assert message["logger"].split("/")[0] == name
    assert "out of cheese" in str(message["data"])


@pytest.mark.parametrize("name", ON_SDKS)
async def test_cancellation_reaches_the_server(client: Client, name: str, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    begun = await client.begin(f"{name}_wait", mark=str(mark))

    async def says(word: str) -> None:
        await until(lambda: mark.exists() and mark.read_text() == word)

    await says("began")
    await client.cancel(begun)
    await says("cancelled")


async def test_new_tools_are_announced(listening_client: Listener) -> None:
    new = f"{ADDED_PREFIX}{next(_NUMBERS)}"
    for name in ON_SDKS:
        assert (await listening_client.client.call(f"{name}_grow", name=new)).text == "grown", name

    async with asyncio.timeout(SECONDS):
        while True:
            await listening_client.notification("notifications/tools/list_changed")
            names = {tool["name"] for tool in await listed(listening_client.client, "tools/list", "tools")}
            if names >= {f"{name}_{new}" for name in ON_SDKS}:
                return


async def test_resource_updates_are_relayed(listening_client: Listener) -> None:
    waiting = {f"{name}+{uri}": (name, step) for name, (uri, step) in UPDATES.items()}
    async with asyncio.timeout(SECONDS):
        while waiting:  # until the subscription reaches the upstream
            for name, step in waiting.values():
                await listening_client.client.ask("tools/call", renamed(step.params, name))
            with suppress(TimeoutError):
                async with asyncio.timeout(0.3):
                    while True:
                        waiting.pop(
                            (await listening_client.notification("notifications/resources/updated"))["uri"], None
                        )


async def test_servers_are_reached_over_stdio_and_sse(tmp_path: Path) -> None:
    over = {
        "every": RealServer(command=from_npm("everything", "stdio")),
        "sse": RealServer(command=from_npm("everything", "sse"), transport="sse"),
        **{f"sdk{line}": RealServer(command=on_python_sdk(line, "stdio")) for line in (1, 2)},
        "typescript": RealServer(command=on_typescript_sdk("stdio")),
        "fast": RealServer(command=on_fastmcp("stdio")),
    }
    async with AsyncExitStack() as stack:
        starting = [stack.enter_async_context(running(name, server, tmp_path)) for name, server in over.items()]
        text = "upstreams:\n" + "".join(server.entry for server in await asyncio.gather(*starting))
        config = tmp_path / "config.yaml"
        config.write_text(text, encoding="utf-8")
        given = {"config": config, "log_level": "error", "no_watch": True, "http": "127.0.0.1:0", "state_dir": "none"}
        gateway = await stack.enter_async_context(Gateway(read_settings(given)))
        await gateway.start()
        client = gateway.memory_client()

        async def answer(name: str) -> str:
            tool, given = ("get-sum", {"a": 2, "b": 3}) if name in {"every", "sse"} else ("add", {"a": 2, "b": 3})
            while True:  # slow servers are announced later
                with suppress(RpcError):
                    return str(await client.request("tools/call", {"name": f"{name}_{tool}", "arguments": given}))
                await asyncio.sleep(0.2)

        async with asyncio.timeout(SECONDS):
            answers = await asyncio.gather(*map(answer, over))
        assert all("5" in each and "isError" not in each for each in answers), answers


def missing(tools: list[Json]) -> list[str]:
    return [name for name in SERVERS if not any(tool["name"].startswith(f"{name}_") for tool in tools)]


@pytest.mark.parametrize("cell", [Cell(binding="sse", revision=LATEST_LEGACY), Cell(binding="http", revision=LATEST)])
async def test_filesystem_server_serves_the_clients_roots(cell: Cell, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("of the root", encoding="utf-8")
    config = tmp_path / "config.yaml"
    command = from_npm("filesystem")(tmp_path, 0)
    config.write_text(f"upstreams: {{files: {{command: {command}, connect_timeout: 90s}}}}\n", encoding="utf-8")
    async with AsyncExitStack() as stack:
        http = await stack.enter_async_context(aiohttp.ClientSession())
        daemon = await stack.enter_async_context(serving(config, "--http", "127.0.0.1:0", "--state-dir", "none"))
        await until_offered(daemon, "files_read_text_file")
        new_client = await stack.enter_async_context(client_factory("", http, None))
        client = await new_client(cell, capabilities={"roots": {}}, daemon=daemon)
        client.respond = lambda _method, _params: {"roots": [{"uri": tmp_path.as_uri(), "name": "root"}]}
        call = {"name": "files_read_text_file", "arguments": {"path": str(tmp_path / "a.txt")}}
        assert (await client.converse("tools/call", call)).text == "of the root"
