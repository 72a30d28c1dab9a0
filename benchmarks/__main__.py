"""`python -m benchmarks`: measure the daemon beside others in one interleaved run, and print the ratios."""

import argparse
import statistics
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

import uvloop

from benchmarks.contenders import BEFORE, CAREFUL, CAREFUL_SERVER, OURS, SDK, SDK_SERVER, Contender, Gateway, Script
from benchmarks.durable import durable
from benchmarks.footprint import Start, held, start_over_http, start_over_stdio
from benchmarks.many_upstreams import MANY, many_upstreams
from benchmarks.proxies import Others
from benchmarks.queries import COLUMNS as QUERY_COLUMNS
from benchmarks.queries import WORK as QUERY
from benchmarks.queries import queries
from benchmarks.relays import COLUMNS, relays
from benchmarks.reloads import TOOLS as RELOADED_TOOLS
from benchmarks.reloads import reloads
from benchmarks.replicated import STORE, replicated
from benchmarks.table import Row, at_most, markdown
from benchmarks.throughput import SERIES, throughput
from benchmarks.upstream import upstream

T = TypeVar("T")

_HAS_SDK: Final = "import mcp.server.mcpserver"


@dataclass(frozen=True, kw_only=True)
class Effort:
    """The number and duration of measurements."""

    rounds: int
    seconds: float
    """The duration of each round."""
    starts: int
    sessions: int
    stored_sessions: int
    streams: int
    reloads: int


FULL: Final = Effort(rounds=12, seconds=0.4, starts=7, sessions=1000, stored_sessions=2000, streams=500, reloads=5)
QUICK: Final = Effort(rounds=1, seconds=0.01, starts=1, sessions=40, stored_sessions=40, streams=20, reloads=1)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="only check that every benchmark works, in half a minute")
    parser.add_argument("--only", default="", metavar="WORDS", help="measure benchmarks with these words in their name")
    parser.add_argument("--sdk", default=sys.executable, metavar="PYTHON", help="a Python with the official SDK")
    parser.add_argument("--no-sdk", action="store_true", help="do not measure the official SDK")
    parser.add_argument("--fastmcp", metavar="PYTHON", help="a Python with FastMCP, to measure its proxy")
    parser.add_argument("--mcp-proxy", metavar="PYTHON", help="a Python with mcp-proxy")
    parser.add_argument("--toolbox", metavar="PROGRAM", help="MCP Toolbox, to measure its HTTP and SQL tools")
    parser.add_argument("--before", metavar="PYTHON", help="a Python with another version of mcp-gateway")
    options = parser.parse_args()
    if not options.no_sdk:
        command = [options.sdk, "-c", _HAS_SDK]
        if subprocess.run(command, capture_output=True, timeout=60, check=False).returncode:
            parser.error(f"{options.sdk} has no official SDK; `pip install --group bench` brings it")
    effort = QUICK if options.quick else FULL
    uvloop.run(_print_measured(options, effort))
    return 0


async def _print_measured(options: argparse.Namespace, effort: Effort) -> None:
    async for rows, names in measure(options, effort):
        print(markdown(rows, names=names), end="\n\n", flush=True)


Table = tuple[list[Row], Sequence[str]]
"""The rows and the names of the columns."""


async def measure(options: argparse.Namespace, effort: Effort) -> AsyncIterator[Table]:
    """Measure everything that matches `options.only`. Each part yields a separate table."""
    with tempfile.TemporaryDirectory(prefix="mcp-gateway-benchmarks-") as directory:
        async with upstream() as url:
            ours = Gateway(Path(directory), url)
            contenders: list[Contender] = [ours, Script(CAREFUL, sys.executable, CAREFUL_SERVER, url)]
            if not options.no_sdk:
                contenders.append(Script(SDK, options.sdk, SDK_SERVER, url))
            if options.before:
                contenders.append(Gateway(Path(directory), url, name=BEFORE, python=options.before))
            names = [contender.name for contender in contenders]
            async for rows, columns in _parts(ours, contenders, options, effort):
                if rows:
                    yield rows, columns or names


async def _parts(
    ours: Gateway, contenders: Sequence[Contender], options: argparse.Namespace, effort: Effort
) -> AsyncIterator[tuple[list[Row], Sequence[str]]]:
    """Yield the rows of each part, and its columns if they are not the contenders."""
    only, rounds, seconds = options.only, effort.rounds, effort.seconds
    series = [each for each in SERIES if only in each.work]
    yield await throughput(contenders, series, rounds=rounds, seconds=seconds), ()
    for name, part in PARTS.items():
        if only in name:
            yield await part(contenders, effort), ()
    if only in _DURABLE:
        yield await durable(ours, rounds=rounds, seconds=seconds), ()
    if only in STORE:
        yield await replicated(ours, rounds=rounds, seconds=seconds, sessions=effort.stored_sessions), ()
    if only in _RELOAD:
        yield await _reloads(ours, effort), ()
    yield await _relayed(ours, options, effort), COLUMNS
    if only in QUERY:
        yield await queries(ours, options.toolbox, rounds=rounds, seconds=seconds), QUERY_COLUMNS


async def _relayed(ours: Gateway, options: argparse.Namespace, effort: Effort) -> list[Row]:
    others = Others(fastmcp=options.fastmcp, mcp_proxy=options.mcp_proxy, toolbox=options.toolbox)
    rows = await relays(ours, others, only=options.only, rounds=effort.rounds, seconds=effort.seconds)
    if options.only in MANY:
        rows += await many_upstreams(ours, rounds=effort.rounds, seconds=effort.seconds)
    return rows


async def _starts(contenders: Sequence[Contender], effort: Effort) -> list[Row]:
    if effort != QUICK:
        await _interleaved(start_over_http, contenders, times=1)  # not counted: compiles modules and warms caches
    over_http = await _interleaved(start_over_http, contenders, times=effort.starts)
    over_stdio = await _interleaved(start_over_stdio, contenders, times=effort.starts)
    resident = {name: statistics.median(each.resident_bytes for each in found) for name, found in over_http.items()}
    return [
        _start_row("start to first reply, HTTP", over_http),
        _start_row("start to first reply, stdio", over_stdio),
        Row(
            work="memory at rest, HTTP",
            unit="MiB",
            figures={name: found / 2**20 for name, found in resident.items()},
            aims=(at_most(95, "MiB"),),
        ),
    ]


def _start_row(work: str, starts: Mapping[str, Sequence[Start]]) -> Row:
    wall = ", ".join(f"{statistics.median(each.wall_seconds for each in found):.2f}" for found in starts.values())
    return Row(
        work=work,
        unit="ms",
        figures={name: statistics.median(each.cpu_seconds for each in found) * 1000 for name, found in starts.items()},
        aims=(at_most(550, "ms"),),
        note=f"{wall} s by the clock",
    )


async def _held(contenders: Sequence[Contender], effort: Effort) -> list[Row]:
    """Measure sessions and streams of the servers that have them."""
    with_streams = [each for each in contenders if each.name != CAREFUL]
    found = await _interleaved(
        lambda contender: held(contender, sessions=effort.sessions, streams=effort.streams), with_streams, times=1
    )
    return [
        Row(
            work="memory of an idle session",
            unit="KiB",
            figures={name: each.session_bytes / 1024 for name, [each] in found.items()},
            aims=(at_most(6, "KiB"),),
        ),
        Row(
            work="memory of an open GET stream",
            unit="KiB",
            figures={name: each.stream_bytes / 1024 for name, [each] in found.items()},
            aims=(at_most(24, "KiB"),),
        ),
    ]


async def _reloads(ours: Gateway, effort: Effort) -> list[Row]:
    found = await reloads(ours, count=effort.reloads)
    quiet, disturbed = (sorted(calls) for calls in (found.quiet_calls, found.disturbed_calls))
    return [
        Row(
            work=f"reload of {RELOADED_TOOLS:,} tools",
            unit="ms",
            figures={OURS: statistics.median(found.seconds) * 1000},
            aims=(at_most(600, "ms"),),
            note=f"{statistics.median(found.cpu_seconds) * 1000:.0f} ms CPU",
        ),
        Row(
            work="a call during the reload, one in a hundred",
            unit="ms",
            figures={OURS: disturbed[len(disturbed) * 99 // 100] * 1000},
            note=f"{quiet[len(quiet) * 99 // 100] * 1000:.1f} ms otherwise; "
            f"slowest {disturbed[-1] * 1000:.1f} and {quiet[-1] * 1000:.1f} ms",
        ),
    ]


PARTS: Final = {"start and memory at rest": _starts, "memory of sessions and streams": _held}
_RELOAD: Final = "reload"
_DURABLE: Final = "tasks and sessions that are stored"


async def _interleaved(
    measured: Callable[[Contender], Awaitable[T]], contenders: Sequence[Contender], *, times: int
) -> dict[str, list[T]]:
    found: dict[str, list[T]] = {contender.name: [] for contender in contenders}
    for _ in range(times):
        for contender in contenders:
            found[contender.name].append(await measured(contender))
    return found


sys.exit(main())
