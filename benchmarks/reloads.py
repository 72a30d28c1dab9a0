"""Measures reloads of a large file and concurrent calls."""

import asyncio
import time
from dataclasses import dataclass
from typing import Any, Final

from benchmarks.connection import Connection, UnexpectedAnswerError, connected
from benchmarks.contenders import Gateway
from benchmarks.messages import Era, call, http, post
from benchmarks.processes import TIMEOUT_SECONDS, Server, started
from benchmarks.rounds import first_reply
from tests.ports import free_port

TOOLS: Final = 1000
_PAUSE_SECONDS: Final = 0.005
"""The delay between calls, so that calls do not queue."""
_QUIET_SECONDS: Final = 0.3
_RELOAD: Final = http("POST", {"Content-Length": "0"}, path="/-/reload")


@dataclass(frozen=True, kw_only=True)
class Reloads:
    seconds: list[float]
    """The durations of the reloads."""
    cpu_seconds: list[float]
    quiet_calls: list[float]
    """Durations of calls without a reload, in seconds."""
    disturbed_calls: list[float]
    """Durations of calls during reloads."""


async def reloads(gateway: Gateway, *, count: int) -> Reloads:
    port = free_port()
    command = [*gateway.command(tools=TOOLS, port=port), "--no-watch"]
    found = Reloads(seconds=[], cpu_seconds=[], quiet_calls=[], disturbed_calls=[])
    async with started(command, port=port) as server:
        await first_reply(server)
        async with connected(port, count=2) as [caller, operator]:
            for edition in range(2, 2 + count):
                await _once(gateway, edition, found, server=server, caller=caller, operator=operator)
    return found


async def _once(  # noqa: PLR0913
    gateway: Gateway, edition: int, found: Reloads, *, server: Server, caller: Connection, operator: Connection
) -> None:
    await _call_until(asyncio.create_task(asyncio.sleep(_QUIET_SECONDS)), caller, found.quiet_calls)
    gateway.file(tools=TOOLS, edition=edition)
    cpu, began = server.cpu_seconds, time.monotonic()
    reloading = asyncio.create_task(operator.ask(_RELOAD))
    await _call_until(reloading, caller, found.disturbed_calls)
    found.seconds.append(time.monotonic() - began)
    found.cpu_seconds.append(server.cpu_seconds - cpu)
    if f"({edition})".encode() not in await first_reply(server):
        raise UnexpectedAnswerError((await reloading).body.decode())


async def _call_until(end: asyncio.Task[Any], caller: Connection, taken: list[float]) -> None:
    numbered = post(call("echo", text="hello"), Era.MODERN)
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while not end.done():
            began = time.monotonic()
            (await caller.ask(numbered(0))).checked()
            taken.append(time.monotonic() - began)
            await asyncio.sleep(_PAUSE_SECONDS)
