"""Real clients and real servers: each its own process, each client its own environment."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.ports import free_port
from tests.programs import need_named_by

PROJECT: Final = Path(__file__).parents[2]
DRIVERS: Final = Path(__file__).parent / "drivers"
SECONDS: Final = 60
NO_STATE: Final = {"MCP_GATEWAY_STATE_DIR": "none"}
"""Nothing is written into the home of who runs the tests."""


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One client, speaking one era over one binding."""

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
    """What the client is to do beyond listing and reading everything."""

    arguments: dict[str, dict[str, Any]] = field(default_factory=dict)
    uris: Sequence[str] = ()
    completions: Sequence[Sequence[str]] = ()


def interpreter(line: int) -> str:
    """The Python that has the official client of this line."""
    return need_named_by(
        f"MCP_GATEWAY_TEST_CLIENT_{line}", what=f"a Python with tests/interop/client-{line}x.txt installed"
    )


async def walk(cell: Cell, config: Path, plan: Plan) -> dict[str, Any]:
    """Serve `config`, let the client use all of it, and return what it saw."""
    asked = {
        "arguments": plan.arguments,
        "uris": list(plan.uris),
        "completions": [list(completion) for completion in plan.completions],
    }
    return await _drive(cell, config, "client", asked)


Front = Callable[[str], AbstractAsyncContextManager[str]]
"""Puts something before a daemon at an address, and says which URL leads there through it."""


async def talk(cell: Cell, config: Path, *, edit: dict[str, str], front: Front | None = None) -> dict[str, Any]:
    """Serve `config`, let the client answer what it is asked and edit the file, and return what it saw."""
    return await _drive(cell, config, "talk", {"edit": edit}, front)


async def outlast(cell: Cell, config: Path, *, edit: dict[str, str], front: Front, folder: Path) -> dict[str, Any]:
    """Serve `config`, let the client call, wait for a file `gone_and_back` after it has made `go`, and go on."""
    files = {name: str(folder / name) for name in ("go", "gone_and_back")}
    return await _drive(cell, config, "talk", {"edit": edit, "outlast": files}, front)


async def _drive(
    cell: Cell, config: Path, driver: str, plan: dict[str, Any], front: Front | None = None
) -> dict[str, Any]:
    """With stdio HTTP is served beside it, since the demo has a tool that asks for the daemon's status there."""
    python = interpreter(cell.line)
    address = f"127.0.0.1:{free_port()}"
    environ = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/"), "MCP_GATEWAY_HTTP": address} | NO_STATE
    serve = [sys.executable, "-m", "gateway", "serve", str(config)]
    path = {"http": "/mcp", "sse": "/sse"}.get(cell.binding)
    asked = {
        **plan,
        "binding": cell.binding,
        "url": None if path is None else f"http://{address}{path}",
        "command": [*serve, "--stdio"],
        "environ": environ,
        "mode": cell.mode,
    }
    async with AsyncExitStack() as stack:
        if path is not None:
            await stack.enter_async_context(_served(serve, environ, address))
        if front is not None:
            asked["url"] = await stack.enter_async_context(front(address)) + str(path)
        outcome: dict[str, Any] = await _run(python, f"{driver}_{cell.line}x.py", asked)
    assert outcome["revision"] == cell.revision
    return outcome


async def drive(cell: Cell, driver: str, plan: dict[str, Any]) -> Any:
    """Let a driver of this client's line carry out a plan, and return what it reports."""
    return await _run(interpreter(cell.line), f"{driver}_{cell.line}x.py", plan)


@asynccontextmanager
async def serving(config: Path) -> AsyncIterator[str]:
    """Serve `config` over HTTP, and say where."""
    address = f"127.0.0.1:{free_port()}"
    environ = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/"), "MCP_GATEWAY_HTTP": address} | NO_STATE
    async with _served([sys.executable, "-m", "gateway", "serve", str(config)], environ, address):
        yield address


async def _run(python: str, driver: str, plan: dict[str, Any]) -> Any:
    client = await asyncio.create_subprocess_exec(
        python,
        str(DRIVERS / driver),
        env={**os.environ, "PYTHONPATH": str(PROJECT)},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(SECONDS):
            out, errors = await client.communicate(json.dumps(plan).encode())
    finally:
        if client.returncode is None:
            client.kill()
            await client.wait()
    assert client.returncode == 0, errors.decode()
    return json.loads(out)


@asynccontextmanager
async def _served(serve: Sequence[str], environ: dict[str, str], address: str) -> AsyncIterator[None]:
    server = await asyncio.create_subprocess_exec(*serve, env=environ, stderr=asyncio.subprocess.PIPE)
    assert server.stderr is not None
    errors = asyncio.create_task(server.stderr.read())
    try:
        await _answering(address, server)
        yield
    finally:
        if server.returncode is None:
            server.terminate()
        async with asyncio.timeout(SECONDS):
            code = await server.wait()
        text = (await errors).decode()
    assert code == 0, text


async def _answering(address: str, server: asyncio.subprocess.Process) -> None:
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
