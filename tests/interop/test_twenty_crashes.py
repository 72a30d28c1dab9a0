"""Official clients keep their sessions while the daemon is killed repeatedly with SIGKILL.

Between crashes every call succeeds in the same session, and updates of the watched resource arrive. As in
deploy/systemd, the supervisor owns the sockets, so a client that reconnects early waits instead of being refused.
Official clients try twice, three seconds apart (`RECONNECT_MS`). A daemon with its own socket must restart in between.
"""

import asyncio
import json
import signal
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest

from tests.conformance.suite import the_suite
from tests.e2e.daemon import Daemon, serving
from tests.interop.official_clients import DRIVERS, PROJECT, interpreter

pytestmark = pytest.mark.build

CRASHES: Final = 20
SECONDS: Final = 40
URI: Final = "note://today"
FILE: Final = """\
tools:
  echo: {description: Repeat a text., input: {text: string}, content: [{text: "{{ text }}"}]}
resources:
  today: {uri: "note://today", file: today.txt}
"""


@dataclass(kw_only=True)
class ClientProcess:
    """A client in a separate process, and its output."""

    name: str
    process: asyncio.subprocess.Process
    said: list[Any] = field(default_factory=list)
    errors: bytes = b""
    _heard: asyncio.Event = field(default_factory=asyncio.Event)

    def order(self, **what: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(what).encode() + b"\n")

    async def wait_for(self, what: str, *, after: int) -> Any:
        """Wait for a report of this kind after the first `after` reports, and return it."""
        async with asyncio.timeout(SECONDS):
            while not (found := [each[what] for each in self.said[after:] if what in each]):
                assert not any("failed" in each for each in self.said), self.said[-3:]
                assert self.process.returncode is None, self.errors.decode()
                self._heard.clear()
                await self._heard.wait()
        return found[0]

    async def listen(self) -> None:
        assert self.process.stdout is not None
        while line := await self.process.stdout.readline():
            self.said.append(json.loads(line))
            self._heard.set()
        self._heard.set()

    async def listen_to_errors(self) -> None:
        assert self.process.stderr is not None
        while line := await self.process.stderr.readline():
            self.errors = (self.errors + line)[-10_000:]


def command_of(client: str) -> Sequence[str]:
    if client == "typescript-1x":
        suite = the_suite()
        sdk = next(each for each in suite.bundle.parents if each.name == "@modelcontextprotocol") / "sdk"
        return [str(suite.node), str(DRIVERS / "client_process.mjs"), str(sdk)]
    line = int(client.removeprefix("python-")[0])
    return [interpreter(line), str(DRIVERS / f"client_process_{line}x.py")]


@asynccontextmanager
async def client_process(client: str, url: str) -> AsyncIterator[ClientProcess]:
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *command_of(client), stdin=pipe, stdout=pipe, stderr=pipe, env={"PYTHONPATH": str(PROJECT), "PATH": "/usr/bin"}
    )
    it = ClientProcess(name=client, process=process)
    listening = [asyncio.create_task(it.listen()), asyncio.create_task(it.listen_to_errors())]
    it.order(url=url, uri=URI)
    try:
        yield it
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        await asyncio.gather(*listening)


async def check_continues(clients: Sequence[ClientProcess], note: Path, *, crash: int) -> None:
    """Have each client call a tool, and receive a change notification."""
    for each in clients:
        before = len(each.said)
        each.order(call=f"after {crash}")
        assert await each.wait_for("answer", after=before) == f"after {crash}"
    before_change = [len(each.said) for each in clients]
    note.write_text(f"after crash {crash}")
    told = (each.wait_for("updated", after=before) for each, before in zip(clients, before_change, strict=True))
    assert await asyncio.gather(*told) == [URI] * len(clients)


async def test_sessions_of_official_clients_outlive_twenty_crashes(tmp_path: Path) -> None:
    config, note = tmp_path / "config.yaml", tmp_path / "today.txt"
    config.write_text(FILE)
    note.write_text("in the beginning")
    listening = socket.create_server(("127.0.0.1", 0), backlog=100)
    port = listening.getsockname()[1]
    url, environment = f"http://127.0.0.1:{port}/mcp", {"MCP_GATEWAY_STATE_DIR": str(tmp_path / "state")}

    @asynccontextmanager
    async def daemon() -> AsyncIterator[Daemon]:
        async with serving(config, watch=True, sockets=[listening], environment=environment) as it:
            await it.url()
            yield it
            it.signal(signal.SIGKILL)

    async with AsyncExitStack() as stack:
        stack.callback(listening.close)
        clients: list[ClientProcess] = []
        for crash in range(CRASHES + 1):
            async with daemon():
                if crash == 0:
                    kinds = ("python-1x", "python-2x", "typescript-1x")
                    clients = [await stack.enter_async_context(client_process(each, url)) for each in kinds]
                    for each in clients:
                        await each.wait_for("session", after=0)
                await check_continues(clients, note, crash=crash)
        for each in clients:
            sessions = [said["session"] for said in each.said if "session" in said]
            assert len(sessions) == 1, "a client opened a new session"
            assert not any("failed" in said for said in each.said)
