"""A real `mcp-gateway serve` in a separate process, over real pipes and a real port."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from socket import socket
from types import MappingProxyType
from typing import Final

import aiohttp
import orjson

from gateway.json_types import Json
from tests.e2e.handover import handing_over
from tests.fork_server import FORKED, REAL
from tests.messages import modern_headers, modern_request

TIMEOUT_SECONDS: Final = 60.0


@dataclass(kw_only=True)
class Daemon:
    """The process and its log."""

    process: asyncio.subprocess.Process
    errors: list[str] = field(default_factory=list)
    has_ended: bool = False
    _said: asyncio.Event = field(default_factory=asyncio.Event)

    async def event(self, name: str, *, within: float = TIMEOUT_SECONDS) -> Json:
        """Wait for a log event, and return it."""
        async with asyncio.timeout(within):
            while True:
                for line in self.errors:
                    with suppress(orjson.JSONDecodeError):
                        if (entry := orjson.loads(line)).get("event") == name:
                            return entry
                assert not self.has_ended, self.errors
                self._said.clear()
                await self._said.wait()

    async def url(self) -> str:
        return str((await self.event("listening"))["url"])

    def signal(self, number: signal.Signals) -> None:
        """Send a signal with `os.kill`, because `Popen.send_signal` can reap the process, which hides its exit code."""
        os.kill(self.process.pid, number)

    async def exit_code(self, *, within: float = TIMEOUT_SECONDS) -> int:
        async with asyncio.timeout(within):
            return await self.process.wait()

    def send(self, *messages: Json) -> None:
        assert self.process.stdin is not None
        for message in messages:
            self.process.stdin.write(orjson.dumps(message) + b"\n")

    async def receive(self) -> Json:
        assert self.process.stdout is not None
        async with asyncio.timeout(TIMEOUT_SECONDS):
            return orjson.loads(await self.process.stdout.readline())

    async def ask(self, message: Json) -> Json:
        self.send(message)
        return await self.receive()

    async def rest(self) -> list[Json]:
        """Return the remaining lines of standard output."""
        assert self.process.stdout is not None
        async with asyncio.timeout(TIMEOUT_SECONDS):
            return [orjson.loads(line) for line in (await self.process.stdout.read()).splitlines()]

    def hang_up(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()

    async def listen_to_errors(self) -> None:
        assert self.process.stderr is not None
        while line := await self.process.stderr.readline():
            self.errors.append(line.decode(errors="replace"))
            self._said.set()
        self.has_ended = True
        self._said.set()


@asynccontextmanager
async def serving(
    config: Path,
    *flags: str,
    watch: bool = False,
    sockets: Sequence[socket] = (),
    names: str = "",
    environment: Mapping[str, str] = MappingProxyType({}),
    launcher: Sequence[str] = (),
    is_forked: bool = True,
) -> AsyncIterator[Daemon]:
    """Run a daemon, and kill it at the end of the context if it has not exited.

    It inherits `sockets`, with `names` separated by colons. `launcher` is the start of its command. With
    `is_forked=False`, it is not forked from `tests/fork_server.py`.
    """
    flags = flags if watch else ("--no-watch", *flags)
    passed = [each.fileno() for each in sockets]
    program = (FORKED,) if is_forked and not launcher else REAL
    command = (*launcher, *program, "serve", str(config), "--log-format", "json", *flags)
    process = await asyncio.create_subprocess_exec(
        *(handing_over(passed, *command) if passed and program == REAL else command),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        limit=16 * 2**20,
        env={**os.environ, **environment, **({"LISTEN_FDNAMES": names} if passed else {})},
        pass_fds=passed,
    )
    daemon = Daemon(process=process)
    listening = asyncio.create_task(daemon.listen_to_errors())
    try:
        yield daemon
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        async with asyncio.timeout(TIMEOUT_SECONDS):
            await process.wait()
            await listening


def call(tool: str, *, request_id: Json = 1, **arguments: Json) -> dict[str, Json]:
    return modern_request("tools/call", {"name": tool, "arguments": arguments}, request_id=request_id)


def text_of(answer: Json) -> str:
    return str(answer["result"]["content"][0]["text"])


async def post_call(client: aiohttp.ClientSession, url: str, tool: str, **arguments: Json) -> Json:
    headers = modern_headers("tools/call", {"name": tool})
    async with client.post(url, json=call(tool, **arguments), headers=headers) as response:
        assert response.status == 200, await response.text()
        return await response.json()
