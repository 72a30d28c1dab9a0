"""Real clients and real servers, over each transport."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest

from tests.fork_server import FORKED, REAL
from tests.interop.official_clients import SECONDS, OfficialClients
from tests.node import NodePackage, find_package
from tests.ports import free_port
from tests.programs import skip_or_fail

NO_STATE: Final = {"MCP_GATEWAY_STATE_DIR": "none"}
"""Prevents daemons from writing to the user's home."""


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A version of the client with a binding and a revision."""

    line: int
    binding: str
    mode: str = "auto"
    revision: str

    def __str__(self) -> str:
        return f"{self.line}x-{self.binding}-{self.revision}"


CELLS: Final = [
    Cell(line=1, binding="stdio", revision="2025-11-25"),
    Cell(line=1, binding="http", revision="2025-11-25"),
    Cell(line=2, binding="stdio", revision="2026-07-28"),
    Cell(line=2, binding="http", revision="2026-07-28"),
    Cell(line=2, binding="stdio", mode="legacy", revision="2025-11-25"),
    Cell(line=2, binding="http", mode="legacy", revision="2025-11-25"),
]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Steps of the client in addition to listing and reading everything."""

    arguments: dict[str, dict[str, Any]] = field(default_factory=dict)
    uris: Sequence[str] = ()
    completions: Sequence[Sequence[str]] = ()


@pytest.fixture(scope="module")
def clients() -> Iterator[OfficialClients]:
    """The official clients, started once for a file of tests."""
    found = OfficialClients()
    yield found
    found.end()


@pytest.fixture(scope="module")
def inspector() -> NodePackage:
    found = find_package(
        Path(__file__).parent, name="@modelcontextprotocol/inspector", variable="MCP_GATEWAY_TEST_INSPECTOR"
    )
    return found if isinstance(found, NodePackage) else skip_or_fail(found)


async def walk(clients: OfficialClients, cell: Cell, config: Path, plan: Plan) -> dict[str, Any]:
    """Serve `config`, let the client use all definitions, and return the results."""
    asked = {
        "arguments": plan.arguments,
        "uris": list(plan.uris),
        "completions": [list(completion) for completion in plan.completions],
    }
    return await _drive(clients, cell, config, "client", asked)


Front = Callable[[str], AbstractAsyncContextManager[str]]
"""Starts a proxy in front of a daemon, and yields its URL."""


async def talk(
    clients: OfficialClients, cell: Cell, config: Path, *, edit: dict[str, str], front: Front | None = None
) -> dict[str, Any]:
    """Serve `config`, let the client respond to requests and edit the file, and return what the client received."""
    return await _drive(clients, cell, config, "talk", {"edit": edit}, front)


async def outlast(
    clients: OfficialClients, cell: Cell, config: Path, *, edit: dict[str, str], front: Front, folder: Path
) -> dict[str, Any]:
    """Serve `config`, and let the client continue after an outage.

    The client creates the file `go` when it is ready, and waits for the file `gone_and_back`.
    """
    files = {name: str(folder / name) for name in ("go", "gone_and_back")}
    return await _drive(clients, cell, config, "talk", {"edit": edit, "outlast": files}, front)


async def _drive(
    clients: OfficialClients,
    cell: Cell,
    config: Path,
    driver: str,
    plan: dict[str, Any],
    front: Front | None = None,
) -> dict[str, Any]:
    """Run a driver, and return its outcome. A stdio daemon also serves HTTP, because the demo requests its status."""
    address = f"127.0.0.1:{free_port()}"
    environ = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/"), "MCP_GATEWAY_HTTP": address} | NO_STATE
    path = {"http": "/mcp", "sse": "/sse"}.get(cell.binding)
    asked = {
        **plan,
        "binding": cell.binding,
        "url": None if path is None else f"http://{address}{path}",
        "command": [*REAL, "serve", str(config), "--stdio"],
        "environ": environ,
        "mode": cell.mode,
    }
    async with AsyncExitStack() as stack:
        if path is not None:
            await stack.enter_async_context(_served(config, environ, address))
        if front is not None:
            asked["url"] = await stack.enter_async_context(front(address)) + str(path)
        outcome: dict[str, Any] = await clients.carry_out(cell.line, driver, asked)
    assert outcome["revision"] == cell.revision
    return outcome


@asynccontextmanager
async def serving(config: Path) -> AsyncIterator[str]:
    """Serve `config` over HTTP, and return the address."""
    address = f"127.0.0.1:{free_port()}"
    environ = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/"), "MCP_GATEWAY_HTTP": address} | NO_STATE
    async with _served(config, environ, address):
        yield address


@asynccontextmanager
async def _served(config: Path, environ: dict[str, str], address: str) -> AsyncIterator[None]:
    server = await asyncio.create_subprocess_exec(
        FORKED, "serve", str(config), env=environ, stderr=asyncio.subprocess.PIPE
    )
    assert server.stderr is not None
    errors = asyncio.create_task(server.stderr.read())
    try:
        await _wait_until_listening(address, server)
        yield
    finally:
        if server.returncode is None:
            server.terminate()
        async with asyncio.timeout(SECONDS):
            code = await server.wait()
        text = (await errors).decode()
    assert code == 0, text


async def _wait_until_listening(address: str, server: asyncio.subprocess.Process) -> None:
    host, _, port = address.rpartition(":")
    async with asyncio.timeout(SECONDS):
        while server.returncode is None:
            try:
                _, writer = await asyncio.open_connection(host, int(port))
            except ConnectionRefusedError:
                await asyncio.sleep(0.02)
            else:
                writer.close()
                await writer.wait_closed()
                return
