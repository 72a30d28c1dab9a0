"""Servers that people run, behind one file: from npm, from PyPI, and on the official SDKs."""

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final

import pytest
import pytest_asyncio

from gateway.app.gateway import Gateway
from gateway.config.settings import read_settings
from gateway.json_types import Json, JsonObject
from tests.behaviour.inside import Client
from tests.node import NodePackage, find_package
from tests.ports import free_port
from tests.programs import do_without, need_named_by
from tests.upstreams.test_primitives import into, listed

pytestmark = [pytest.mark.build, pytest.mark.asyncio(loop_scope="module")]

HERE: Final = Path(__file__).parent
SDK: Final = HERE / "testdata" / "sdk_server.py"
SECONDS: Final = 90.0


def from_npm(name: str, *arguments: object) -> str:
    package = f"@modelcontextprotocol/server-{name}"
    found = find_package(HERE, name=package, variable="MCP_GATEWAY_TEST_SERVERS")
    if not isinstance(found, NodePackage):
        do_without(found)
    return f"command: {[str(found.node), str(found.directory / 'dist' / 'index.js'), *map(str, arguments)]}"


def from_pypi(name: str) -> str:
    python = need_named_by("MCP_GATEWAY_TEST_PYTHON_SERVERS", what="a Python that has tests/upstreams/servers.txt")
    return f"command: {[python, '-m', name]}"


def on_sdk(line: int, *arguments: object) -> list[str]:
    python = need_named_by(f"MCP_GATEWAY_TEST_CLIENT_{line}", what=f"a Python with the official SDK {line}.x")
    return [python, str(SDK), *map(str, arguments)]


@asynccontextmanager
async def listening(command: list[str], port: int) -> AsyncIterator[None]:
    """The server in a process of its own, once its port takes connections."""
    quiet = asyncio.subprocess.DEVNULL
    process = await asyncio.create_subprocess_exec(*command, stdout=quiet, stderr=quiet, env=dict(os.environ))
    try:
        async with asyncio.timeout(SECONDS):
            while True:
                with socket.socket() as probe:
                    if probe.connect_ex(("127.0.0.1", port)) == 0:
                        break
                await asyncio.sleep(0.05)
        yield
    finally:
        process.kill()
        await process.wait()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Client]:
    folder = tmp_path_factory.mktemp("real")
    (folder / "data").mkdir()
    (folder / "data" / "note.txt").write_text("water the plants", encoding="utf-8")
    entries = {
        "every": from_npm("everything"),
        "files": from_npm("filesystem", folder / "data"),
        "memory": from_npm("memory") + f", env: {{MEMORY_FILE_PATH: {folder / 'memory.json'}}}",
        "clock": from_pypi("mcp_server_time"),
        "git": from_pypi("mcp_server_git"),
    }
    async with AsyncExitStack() as stack:
        for line in (1, 2):
            entries[f"sdk{line}_stdio"] = f"command: {on_sdk(line, 'stdio')}"
            for name, transport, path in (("http", "streamable-http", "mcp"), ("sse", "sse", "sse")):
                port = free_port()
                await stack.enter_async_context(listening(on_sdk(line, transport, port), port))
                entries[f"sdk{line}_{name}"] = f"url: 'http://127.0.0.1:{port}/{path}', allow_private: true"
        lines = "".join(f"  {name}: {{{entry}}}\n" for name, entry in entries.items())
        config = folder / "config.yaml"
        config.write_text(f"upstreams:\n{lines}", encoding="utf-8")
        given = {"config": config, "log_level": "error", "no_watch": True, "http": "127.0.0.1:0", "state_dir": "none"}
        gateway = await stack.enter_async_context(Gateway(read_settings(given)))
        await gateway.start()
        client = Client(gateway.memory_client())
        async with asyncio.timeout(SECONDS):  # who needs longer than the start waits is announced
            while _without_tools(entries, await listed(client, "tools/list", "tools")):
                await asyncio.sleep(1.1)
        yield client


def _without_tools(entries: Iterable[str], tools: Iterable[str]) -> list[str]:
    names = [*tools]
    return [entry for entry in entries if not any(name.startswith(f"{entry}_") for name in names)]


ALL_SDKS: Final = [f"sdk{line}_{way}" for line in (1, 2) for way in ("stdio", "http", "sse")]


@pytest.mark.parametrize(
    ("tool", "arguments", "expected"),
    [
        ("every_echo", {"message": "hi"}, "Echo: hi"),
        ("every_get-sum", {"a": 2, "b": 3}, "The sum of 2 and 3 is 5."),
        ("files_list_allowed_directories", {}, "Allowed directories:"),
        ("memory_read_graph", {}, "entities"),
        ("clock_get_current_time", {"timezone": "UTC"}, '"timezone": "UTC"'),
        *((f"{name}_add", {"a": 2, "b": 3}, "5") for name in ALL_SDKS),
    ],
)
async def test_tools_are_called(client: Client, tool: str, arguments: dict[str, Json], expected: str) -> None:
    assert expected in (await client.call(tool, **arguments))["content"][0]["text"]


async def test_structured_content_and_its_schema_come_as_they_are(client: Client) -> None:
    tools = await listed(client, "tools/list", "tools")
    result = await client.call("every_get-structured-content", location="Chicago")

    assert set(tools["every_get-structured-content"]["outputSchema"]["required"]) <= set(result["structuredContent"])


async def test_images_and_resource_links_come_as_they_are(client: Client) -> None:
    image = (await client.call("every_get-tiny-image"))["content"]
    links = (await client.call("every_get-resource-links", count=2))["content"]

    assert "image" in [block["type"] for block in image]
    assert [block["type"] for block in links][1:] == ["resource_link", "resource_link"]
    uri = links[1]["uri"]
    assert (await client.read(uri))["uri"] == uri


@pytest.mark.parametrize("tool", ["every_trigger-long-running-operation", *(f"{name}_count" for name in ALL_SDKS)])
async def test_progress_is_relayed(client: Client, tool: str) -> None:
    heard: list[JsonObject] = []
    arguments = {"duration": 0.1, "steps": 3} if tool.startswith("every") else {"to": 3}

    await client.request("tools/call", {"name": tool, "arguments": arguments}, on_notification=into(heard))

    assert [each["params"]["progress"] for each in heard if each["method"] == "notifications/progress"] == [1, 2, 3]


@pytest.mark.parametrize("name", ["sdk1_stdio", "sdk2_http"])
async def test_prompts_are_got(client: Client, name: str) -> None:
    [message] = await client.prompt(f"{name}_review", text="x")

    assert message["content"]["text"] == "Review x"


async def test_a_template_of_an_sdk_is_read(client: Client) -> None:
    assert (await client.read("greeting://ada"))["text"] == "hello ada"


async def test_arguments_are_completed(client: Client) -> None:
    params = {
        "ref": {"type": "ref/prompt", "name": "every_completable-prompt"},
        "argument": {"name": "department", "value": "E"},
    }

    assert "Engineering" in (await client.request("completion/complete", params))["completion"]["values"]
