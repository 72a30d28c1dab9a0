"""Measures the cost of sharing sessions over Redis, compared with no store.

`python -m benchmarks.replicated --sessions 100000` opens sessions over three replicas, uses each at all of them, and
reports the Redis memory per session and what is left after expiry. `--processes` compares the calls per second of one
and two workers, by wall time and by the CPU time of daemons and clients.
"""

import argparse
import asyncio
import os
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple

import uvloop

from benchmarks.connection import Connection, UnexpectedAnswerError, connected
from benchmarks.contenders import OURS, Gateway
from benchmarks.messages import Era, Numbered, call, post
from benchmarks.processes import Server, started
from benchmarks.rounds import CONNECTIONS, first_reply, http_round, opened
from benchmarks.table import Row, at_most
from benchmarks.upstream import upstream
from tests.ports import free_port
from tests.redis_server import RedisServer, redis_server

STORE: Final = "modern call, session's call, session: with Redis"
_TTL_SECONDS: Final = 120
"""The default TTL of abandoned sessions. The store keeps them half as long again."""
_FILE: Final = """
listen: {session_ttl: %d}
limits: {sessions: {in_all: 1000000, per_caller: 1000000}}
tools:
  echo:
    input: {text: string}
    content: "{{ text }}"
"""
_ECHO: Final = call("echo", text="Good morning")
_KEY: Final = "a key that all replicas have"
_REPLICAS: Final = 3
_LOAD: Final = 64
"""The connections for comparing one and two workers."""


async def replicated(gateway: Gateway, *, rounds: int, seconds: float, sessions: int) -> list[Row]:
    """Return rows for a call of each era and for the memory of a session."""
    ratios: dict[Era, list[float]] = {Era.MODERN: [], Era.SESSION: []}
    with tempfile.TemporaryDirectory() as directory:
        file = _file(Path(directory), ttl=3600)
        async with (
            redis_server(Path(directory) / "redis") as redis,
            _serving(gateway, file, store=redis.url) as stored,
            _serving(gateway, file) as alone,
        ):
            for number in range(rounds):
                for era, found in ratios.items():
                    costs = {}
                    for server in (stored, alone) if number % 2 else (alone, stored):
                        costs[server] = (await http_round(server, _ECHO, era, seconds=seconds)).cpu_seconds
                    found.append(costs[stored] / costs[alone])
    size, _ = await _sessions(gateway, count=sessions)
    median = {era: statistics.median(found) for era, found in ratios.items()}
    note = "CPU of the daemon, the median of interleaved rounds"
    return [
        _row("modern call with Redis, to one without", median[Era.MODERN], unit="×", aim=1.3, note=note),
        _row("session's call with Redis, to one without", median[Era.SESSION], unit="×", aim=1.3, note=note),
        _row("session in Redis, used at three replicas", size, unit="B", aim=1024, note=f"{sessions} sessions"),
    ]


def _row(work: str, figure: float, *, unit: str, aim: float, note: str) -> Row:
    return Row(work=work, unit=unit, figures={OURS: figure}, aims=(at_most(aim, unit),), note=note)


def _file(directory: Path, *, ttl: int) -> Path:
    path = directory / "config.yaml"
    path.write_text(_FILE % ttl)
    return path


@asynccontextmanager
async def _serving(gateway: Gateway, file: Path, *, store: str = "", workers: int = 1) -> AsyncIterator[Server]:
    port = free_port()
    environment = {"MCP_GATEWAY_STORE": store, "MCP_GATEWAY_SECRET_KEY": _KEY} if store else {}
    command = [*gateway.serve(file, port=port), *(["--workers", str(workers)] if workers > 1 else [])]
    async with started(command, port=port, environment=environment) as server:
        await first_reply(server)
        yield server


async def _sessions(gateway: Gateway, *, count: int, ttl: int | None = None) -> tuple[float, int]:
    """Return the bytes of Redis per session, and the number of keys left after expiry.

    Without a `ttl` the expiry is not awaited.
    """
    with tempfile.TemporaryDirectory() as directory:
        file = _file(Path(directory), ttl=ttl or 3600)
        async with AsyncExitStack() as stack:
            redis = await stack.enter_async_context(redis_server(Path(directory) / "redis"))
            replicas = [
                await stack.enter_async_context(_serving(gateway, file, store=redis.url)) for _ in range(_REPLICAS)
            ]
            pools = [await stack.enter_async_context(connected(each.port, count=CONNECTIONS)) for each in replicas]
            before = await _used(redis)
            numbers = iter(range(count))
            await asyncio.gather(*(_use(connections, numbers) for connections in zip(*pools, strict=True)))
            size = (await _used(redis) - before) / count
            found = await _keys(redis, "session:*")
            if found < count:
                raise UnexpectedAnswerError(f"{count - found} sessions expired during the run: --ttl must be longer")
            print(f"{count} sessions: {size:.0f} B of Redis each", file=sys.stderr, flush=True)
            if ttl is not None:
                async with asyncio.timeout(60 + 3 * ttl):
                    while await _keys(redis):  # noqa: ASYNC110 - Redis does not announce expired keys
                        await asyncio.sleep(1)
            return size, await _keys(redis) if ttl is not None else 0


async def _use(connections: Sequence[Connection], numbers: Iterator[int]) -> None:
    """Open sessions at one replica and use each at all replicas."""
    first, *others = connections
    for _ in numbers:
        session = await opened(first)
        for each in others:
            (await each.ask(post(_ECHO, Era.SESSION, session=session)(1))).checked()


async def _used(redis: RedisServer) -> int:
    return int((await redis.client.info("memory"))["used_memory"])


async def _keys(redis: RedisServer, pattern: str = "*session*") -> int:
    """Count the keys of sessions and of session counts."""
    return sum([1 async for _ in redis.client.scan_iter(f"mcp-gateway:{pattern}", count=10_000)])


async def _processes(gateway: Gateway, *, rounds: int, seconds: float) -> None:
    """Print the calls per second of one and two workers."""
    with tempfile.TemporaryDirectory() as directory:
        file = _file(Path(directory), ttl=3600)
        async with redis_server(Path(directory) / "redis") as redis, AsyncExitStack() as stack:
            servers = {
                count: await stack.enter_async_context(
                    _serving(gateway, file, store=f"{redis.url}?prefix=w{count}", workers=count)
                )
                for count in (1, 2)
            }
            for era in (Era.MODERN, Era.SESSION):
                found: dict[int, list[_Load]] = {1: [], 2: []}
                for server in servers.values():
                    await _loaded(server, era, seconds=1.0)  # not counted: one-time work
                for _ in range(rounds):
                    for count, server in servers.items():
                        found[count].append(await _loaded(server, era, seconds=seconds))
                _report(era, found)


class _Load(NamedTuple):
    """Calls per second, and CPU seconds per call."""

    calls: float
    of_daemon: float
    of_load: float


async def _loaded(server: Server, era: Era, *, seconds: float) -> _Load:
    async with connected(server.port, count=_LOAD) as connections:
        posts = [post(_ECHO, era, session=await opened(each) if era is Era.SESSION else None) for each in connections]
        began, daemon, load = time.monotonic(), _family_seconds(server), time.process_time()
        calls = 0

        async def go_on(connection: Connection, numbered: Numbered) -> None:
            nonlocal calls
            while time.monotonic() < began + seconds:
                (await connection.ask(numbered(calls))).checked()
                calls += 1

        await asyncio.gather(*map(go_on, connections, posts))
        wall = time.monotonic() - began
        return _Load(calls / wall, (_family_seconds(server) - daemon) / calls, (time.process_time() - load) / calls)


def _family_seconds(server: Server) -> float:
    """Return the CPU time of a server and its children (proc_pid_stat(5))."""
    tick = os.sysconf("SC_CLK_TCK")
    total = 0.0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            fields = stat.read_text().rpartition(")")[2].split()
            if int(stat.parent.name) == server.process.pid or int(fields[1]) == server.process.pid:
                total += (int(fields[11]) + int(fields[12])) / tick
    return total


def _report(era: Era, found: Mapping[int, Sequence[_Load]]) -> None:
    for count, loads in found.items():
        calls, daemon, load = (statistics.median(each) for each in zip(*loads, strict=True))
        cores = len(os.sched_getaffinity(0))
        print(
            f"{era.name.lower()}, {count} of {cores}: {calls:.0f} calls/s by the wall;"
            f" {daemon * 1e6:.0f} µs of the daemon and {load * 1e6:.0f} µs of the load for each;"
            f" {min(count, cores) / daemon:.0f} calls/s if the load ran elsewhere"
        )


async def _main(options: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as directory:
        async with upstream() as url:
            gateway = Gateway(Path(directory), url)
            if options.sessions:
                size, left = await _sessions(gateway, count=options.sessions, ttl=options.ttl)
                print(f"{options.sessions} sessions: {size:.0f} B of Redis each, {left} keys left after expiry")
            if options.processes:
                await _processes(gateway, rounds=options.rounds, seconds=options.seconds)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m benchmarks.replicated", description=__doc__)
    parser.add_argument(
        "--sessions", type=int, default=0, metavar="N", help="open this number of sessions and wait until they expire"
    )
    parser.add_argument(
        "--ttl", type=int, default=_TTL_SECONDS, metavar="SECONDS", help="the lifetime of abandoned sessions"
    )
    parser.add_argument("--processes", action="store_true", help="compare one worker with two")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=3.0, help="the duration of a round")
    uvloop.run(_main(parser.parse_args()))
