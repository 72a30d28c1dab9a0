"""Sends the same request repeatedly and measures the cost."""

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final

from benchmarks.connection import Connection, UnexpectedAnswerError, connected
from benchmarks.messages import INITIALIZE, LIST, Ask, Era, Numbered, notice, post
from benchmarks.processes import TIMEOUT_SECONDS, Server

CONNECTIONS: Final = 4
"""The number of concurrent clients, each with one request at a time and its own session."""
_WARM_UP: Final = 0.2
"""The warm-up as a fraction of a round, which is not counted."""
_GLANCE_SECONDS: Final = 0.01

Once = Callable[[int], Awaitable[None]]
"""Sends a request with this number as id and waits for the response."""


@dataclass(frozen=True, kw_only=True)
class Cost:
    """The average cost of a call."""

    cpu_seconds: float
    wall_seconds: float


async def http_round(server: Server, ask: Ask, era: Era, *, seconds: float) -> Cost:
    async with connected(server.port, count=CONNECTIONS) as connections:
        return await _cost(server, [await _poster(each, ask, era) for each in connections], seconds=seconds)


async def stdio_round(server: Server, ask: Ask, era: Era, *, seconds: float) -> Cost:
    """Measure one call at a time, as usual for stdio. A session must be open."""
    numbered = Numbered(ask.line(era))

    async def once(number: int) -> None:
        line = await server.ask_line(numbered(number))
        if b'"result":' not in line:
            raise UnexpectedAnswerError(line.decode(errors="replace"))

    return await _cost(server, [once], seconds=seconds)


async def opened(connection: Connection) -> str | None:
    """Open a session and return its id, if there is one."""
    answer = (await connection.ask(post(INITIALIZE, Era.SESSION)(0))).checked()
    await connection.ask(notice(answer.session))
    return answer.session


async def first_reply(server: Server, ask: Ask = LIST, era: Era = Era.MODERN) -> bytes:
    """Wait until a new server responds over HTTP; to `initialize` in the session era."""
    ask = ask if era is Era.MODERN else INITIALIZE
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while True:
            try:
                async with connected(server.port, count=1) as [connection]:
                    return (await connection.ask(post(ask, era)(0))).checked().body
            except ConnectionRefusedError:
                if server.has_ended:
                    raise UnexpectedAnswerError("the server ended before it answered") from None
                await asyncio.sleep(_GLANCE_SECONDS)


async def _poster(connection: Connection, ask: Ask, era: Era) -> Once:
    numbered = post(ask, era, session=await opened(connection) if era is Era.SESSION else None)

    async def once(number: int) -> None:
        (await connection.ask(numbered(number))).checked()

    return once


async def _cost(server: Server, askers: Sequence[Once], *, seconds: float) -> Cost:
    await _repeat(askers, seconds=seconds * _WARM_UP)
    cpu, wall = server.cpu_seconds, time.monotonic()
    calls = await _repeat(askers, seconds=seconds)
    return Cost(
        cpu_seconds=(server.cpu_seconds - cpu) / calls,
        wall_seconds=(time.monotonic() - wall) / calls,
    )


async def _repeat(askers: Sequence[Once], *, seconds: float) -> int:
    """Repeat for this time, at least once each, and return the number of requests."""
    numbers = itertools.count(1)
    end = time.monotonic() + seconds

    async def repeat(once: Once) -> int:
        done = 0
        while not done or time.monotonic() < end:
            await once(next(numbers))
            done += 1
        return done

    async with asyncio.timeout(seconds + TIMEOUT_SECONDS):
        return sum(await asyncio.gather(*map(repeat, askers)))
