"""Published servers from npm and PyPI, and servers written with the official SDKs and FastMCP."""

import asyncio
import os
import socket
import subprocess
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.node import NodePackage, find_package
from tests.ports import free_port
from tests.programs import need_named_by, skip_or_fail

HERE: Final = Path(__file__).parent
TESTDATA: Final = HERE / "testdata"
SECONDS: Final = 90.0

Command = Callable[[Path, int], list[str]]
"""Returns the command of a server, given its data directory and a free port."""


@dataclass(frozen=True, kw_only=True)
class RealServer:
    """A server, and how the gateway connects to it."""

    command: Command
    transport: str = "stdio"
    keys: str = ""
    """Other keys of the entry."""


@dataclass(frozen=True, kw_only=True)
class Running:
    """A server to connect to: a URL for HTTP, or a command for stdio."""

    name: str
    server: RealServer
    command: Sequence[str]
    environment: Mapping[str, str]
    url: str

    @property
    def entry(self) -> str:
        """The entry in the file."""
        if self.server.transport == "stdio":
            way = f"command: {self.command}, env: {dict(self.environment)}"
        else:
            way = f"url: '{self.url}', allow_private: true"
        return f"  {self.name}: {{{way}, uri_prefix: {self.name}+{self.server.keys}}}\n"


def from_npm(name: str, *arguments: str) -> Command:
    def command(data: Path, _port: int) -> list[str]:
        found = _package(f"@modelcontextprotocol/server-{name}")
        given = [word.format(data=data) for word in arguments]
        return [str(found.node), str(found.directory / "dist" / "index.js"), *given]

    return command


def from_pypi(module: str, *arguments: str) -> Command:
    def command(data: Path, _port: int) -> list[str]:
        return [_python_with_servers(), "-m", module, *(word.format(data=data) for word in arguments)]

    return command


def on_python_sdk(line: int, transport: str) -> Command:
    def command(_data: Path, port: int) -> list[str]:
        python = need_named_by(f"MCP_GATEWAY_TEST_CLIENT_{line}", what=f"a Python with the official SDK {line}.x")
        return [python, str(TESTDATA / "sdk_server.py"), transport, str(port)]

    return command


def on_typescript_sdk(transport: str) -> Command:
    def command(_data: Path, port: int) -> list[str]:
        found = _package("@modelcontextprotocol/server")
        return [
            str(found.node),
            str(TESTDATA / "sdk_server.mjs"),
            str(found.directory.parents[1]),
            transport,
            str(port),
        ]

    return command


def on_fastmcp(transport: str) -> Command:
    def command(_data: Path, port: int) -> list[str]:
        return [_python_with_servers(), str(TESTDATA / "fastmcp_server.py"), transport, str(port)]

    return command


@asynccontextmanager
async def running(name: str, server: RealServer, data: Path) -> AsyncIterator[Running]:
    """Start a server over HTTP, and wait until its port accepts connections."""
    port = 0 if server.transport == "stdio" else free_port()
    environment = {"MEMORY_FILE_PATH": str(data / "memory.json")} if "memory" in name else {}
    made = Running(
        name=name,
        server=server,
        command=server.command(data, port),
        environment=environment,
        url=f"http://127.0.0.1:{port}/{'sse' if server.transport == 'sse' else 'mcp'}",
    )
    if not port:
        yield made
        return
    async with process(made, port) as started:
        async with asyncio.timeout(SECONDS):
            while not _listens(port):
                assert started.returncode is None, f"{name} exited with {started.returncode}"
                await asyncio.sleep(0.05)
        yield made


@asynccontextmanager
async def process(server: Running, port: int = 0) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run the process of a server. Its standard error is discarded."""
    pipe, nothing = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
    started = await asyncio.create_subprocess_exec(
        *server.command,
        stdin=nothing if port else pipe,
        stdout=nothing if port else pipe,
        stderr=nothing,
        limit=16 * 2**20,
        env={**os.environ, **server.environment, "PORT": str(port)},
    )
    try:
        yield started
    finally:
        with suppress(ProcessLookupError):
            started.kill()
        await started.wait()


def prepare(data: Path) -> None:
    """Create the files and repositories that the servers need."""
    (data / "files").mkdir(parents=True)
    (data / "files" / "note.txt").write_text("water the plants", encoding="utf-8")
    (data / "repository").mkdir()
    identity = ["-c", "user.name=Ada", "-c", "user.email=ada@example.com"]
    for words in (["init", "-q", "-b", "main"], [*identity, "commit", "-q", "--allow-empty", "-m", "Begin"]):
        subprocess.run(["git", *words], cwd=data / "repository", check=True, timeout=SECONDS)


def _package(name: str) -> NodePackage:
    found = find_package(HERE, name=name, variable="MCP_GATEWAY_TEST_SERVERS")
    return found if isinstance(found, NodePackage) else skip_or_fail(found)


def _python_with_servers() -> str:
    return need_named_by("MCP_GATEWAY_TEST_PYTHON_SERVERS", what="a Python that has tests/upstreams/servers.txt")


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
