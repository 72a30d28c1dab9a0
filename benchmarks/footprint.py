"""Measures start-up time and memory: at rest, per session and per open stream."""

import time
from dataclasses import dataclass
from typing import Final

from benchmarks.connection import connected
from benchmarks.contenders import Contender
from benchmarks.messages import INITIALIZE, Era, Numbered, stream
from benchmarks.processes import Server, started
from benchmarks.rounds import first_reply, opened
from tests.ports import free_port

TOOLS: Final = 10


@dataclass(frozen=True, kw_only=True)
class Start:
    """The time until the first reply."""

    cpu_seconds: float
    wall_seconds: float
    resident_bytes: int


@dataclass(frozen=True, kw_only=True)
class Held:
    """Memory per idle client."""

    session_bytes: float
    stream_bytes: float
    """In addition to its session."""


async def start_over_http(contender: Contender) -> Start:
    port, began = free_port(), time.monotonic()
    async with started(contender.command(tools=TOOLS, port=port), port=port) as server:
        await first_reply(server)
        return _start(server, began)


async def start_over_stdio(contender: Contender) -> Start:
    began = time.monotonic()
    async with started(contender.command(tools=TOOLS, port=None)) as server:
        await server.ask_line(Numbered(INITIALIZE.line(Era.SESSION))(0))
        return _start(server, began)


async def held(contender: Contender, *, sessions: int, streams: int) -> Held:
    """Open sessions and streams, each in its own session, and measure their memory."""
    port = free_port()
    async with started(contender.command(tools=TOOLS, port=port), port=port) as server:
        await first_reply(server)
        async with connected(port, count=1) as [connection]:
            for _ in range(sessions // 4):  # first, to exclude one-time growth
                await opened(connection)
            before = server.resident_bytes
            ids = [await opened(connection) for _ in range(sessions)]
            with_sessions = server.resident_bytes
            async with connected(port, count=streams) as connections:
                for each, session in zip(connections, ids, strict=False):
                    await each.open_stream(stream(session))
                with_streams = server.resident_bytes
        return Held(
            session_bytes=(with_sessions - before) / sessions,
            stream_bytes=(with_streams - with_sessions) / streams,
        )


def _start(server: Server, began: float) -> Start:
    return Start(
        cpu_seconds=server.cpu_seconds,
        wall_seconds=time.monotonic() - began,
        resident_bytes=server.resident_bytes,
    )
