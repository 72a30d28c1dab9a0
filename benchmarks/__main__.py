"""`python -m benchmarks`: measure the daemon beside the official SDK in one interleaved run, and print the ratios."""

import argparse
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

import uvloop

from benchmarks.contenders import Contender, Gateway, OfficialSdk
from benchmarks.footprint import Start, held, start_over_http, start_over_stdio
from benchmarks.reloads import TOOLS as RELOADED_TOOLS
from benchmarks.reloads import reloads
from benchmarks.table import Row, markdown
from benchmarks.throughput import SERIES, throughput
from benchmarks.upstream import upstream

T = TypeVar("T")

_VERSION_OF_SDK: Final = "from importlib.metadata import version; print(version('mcp'))"


@dataclass(frozen=True, kw_only=True)
class Effort:
    """How long to look."""

    rounds: int
    seconds: float
    """Of each."""
    starts: int
    sessions: int
    streams: int
    reloads: int


FULL: Final = Effort(rounds=12, seconds=0.4, starts=7, sessions=1000, streams=500, reloads=5)
QUICK: Final = Effort(rounds=1, seconds=0.1, starts=1, sessions=40, streams=20, reloads=1)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="see that all works, in half a minute; no figure is good")
    parser.add_argument("--only", default="", metavar="WORDS", help="measure what holds these words in its name")
    parser.add_argument("--sdk", default=sys.executable, metavar="PYTHON", help="a Python that has the official SDK")
    options = parser.parse_args()
    found = subprocess.run(
        [options.sdk, "-c", _VERSION_OF_SDK], capture_output=True, text=True, timeout=60, check=False
    )
    if found.returncode:
        parser.error(f"{options.sdk} has no official SDK; `pip install --group bench` brings it")
    effort = QUICK if options.quick else FULL
    rows = uvloop.run(measure(options.sdk, effort, only=options.only))
    print(markdown(rows, names=("mcp-gateway", f"official SDK {found.stdout.strip()}")))
    return 0


async def measure(sdk: str, effort: Effort, *, only: str) -> list[Row]:
    with tempfile.TemporaryDirectory(prefix="mcp-gateway-benchmarks-") as directory:
        async with upstream() as url:
            ours, theirs = Gateway(Path(directory), url), OfficialSdk(sdk, url)
            series = [each for each in SERIES if only in each.work]
            rows = await throughput(ours, theirs, series, rounds=effort.rounds, seconds=effort.seconds)
            for name, part in PARTS.items():
                if only in name:
                    rows += await part(ours, theirs, effort)
            return rows


async def _starts(ours: Gateway, theirs: Contender, effort: Effort) -> list[Row]:
    await _in_turn(start_over_http, ours, theirs, times=1)  # not counted: it compiles, and fills the system's caches
    own, other = await _in_turn(start_over_http, ours, theirs, times=effort.starts)
    own_stdio, other_stdio = await _in_turn(start_over_stdio, ours, theirs, times=effort.starts)
    return [
        _start_row("start to first reply, HTTP", own, other),
        _start_row("start to first reply, stdio", own_stdio, other_stdio),
        Row(
            work="memory at rest, HTTP",
            unit="MiB",
            ours=statistics.median(start.resident_bytes for start in own) / 2**20,
            theirs=statistics.median(start.resident_bytes for start in other) / 2**20,
            at_least=1,
        ),
    ]


def _start_row(work: str, ours: list[Start], theirs: list[Start]) -> Row:
    own, other = (statistics.median(start.wall_seconds for start in starts) for starts in (ours, theirs))
    return Row(
        work=work,
        unit="ms",
        ours=statistics.median(start.cpu_seconds for start in ours) * 1000,
        theirs=statistics.median(start.cpu_seconds for start in theirs) * 1000,
        at_least=2,
        note=f"{own:.2f} s and {other:.2f} s by the clock",
    )


async def _held(ours: Gateway, theirs: Contender, effort: Effort) -> list[Row]:
    [own], [other] = await _in_turn(
        lambda contender: held(contender, sessions=effort.sessions, streams=effort.streams), ours, theirs, times=1
    )
    return [
        Row(
            work="memory of an idle session",
            unit="KiB",
            ours=own.session_bytes / 1024,
            theirs=other.session_bytes / 1024,
            at_least=1,
            at_most=4,
        ),
        Row(
            work="memory of an open stream",
            unit="KiB",
            ours=own.stream_bytes / 1024,
            theirs=other.stream_bytes / 1024,
            at_least=1,
            at_most=20,
        ),
    ]


async def _reloads(ours: Gateway, _theirs: Contender, effort: Effort) -> list[Row]:
    found = await reloads(ours, count=effort.reloads)
    quiet, disturbed = (sorted(calls) for calls in (found.quiet_calls, found.disturbed_calls))
    return [
        Row(
            work=f"reload of {RELOADED_TOOLS:,} tools",
            unit="ms",
            ours=statistics.median(found.seconds) * 1000,
            at_most=2000,
            note=f"{statistics.median(found.cpu_seconds) * 1000:.0f} ms CPU",
        ),
        Row(
            work="a call meanwhile, one in a hundred",
            unit="ms",
            ours=disturbed[len(disturbed) * 99 // 100] * 1000,
            note=f"{quiet[len(quiet) * 99 // 100] * 1000:.1f} ms otherwise; "
            f"slowest {disturbed[-1] * 1000:.1f} and {quiet[-1] * 1000:.1f} ms",
        ),
    ]


PARTS: Final = {"start and memory at rest": _starts, "memory of sessions and streams": _held, "reload": _reloads}


async def _in_turn(
    measured: Callable[[Contender], Awaitable[T]], ours: Contender, theirs: Contender, *, times: int
) -> tuple[list[T], list[T]]:
    pairs = [(await measured(ours), await measured(theirs)) for _ in range(times)]
    own, other = zip(*pairs, strict=True)
    return list(own), list(other)


sys.exit(main())
