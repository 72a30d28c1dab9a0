"""What a call costs: rounds of both contenders in turn, so that a change of the machine's mood hits both."""

import statistics
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Final

from benchmarks.contenders import Contender
from benchmarks.messages import INITIALIZE, INITIALIZED, LIST, Ask, Era, Numbered, call
from benchmarks.processes import Server, started
from benchmarks.rounds import Cost, first_reply, http_round, stdio_round
from benchmarks.table import Row
from tests.ports import free_port


@dataclass(frozen=True, kw_only=True)
class Series:
    """The same request, over and over."""

    work: str
    ask: Ask
    era: Era
    at_least: float
    """How many times cheaper ours shall be."""
    tools: int = 10
    """How many the server has."""
    is_stdio: bool = False


_ECHO: Final = call("echo", text="Good morning")
_SHELL: Final = call("shell_echo", text="Good morning")
_HTTP: Final = call("http_get", item="morning")

SERIES: Final = (
    Series(work="content tool, modern", ask=_ECHO, era=Era.MODERN, at_least=4),
    Series(work="content tool, session", ask=_ECHO, era=Era.SESSION, at_least=6),
    Series(work="content tool, stdio", ask=_ECHO, era=Era.SESSION, at_least=4, is_stdio=True),
    Series(work="HTTP tool, modern", ask=_HTTP, era=Era.MODERN, at_least=4),
    Series(work="HTTP tool, session", ask=_HTTP, era=Era.SESSION, at_least=4),
    Series(work="shell tool, modern", ask=_SHELL, era=Era.MODERN, at_least=2),
    Series(work="shell tool, session", ask=_SHELL, era=Era.SESSION, at_least=2),
    Series(work="list of 10 tools, modern", ask=LIST, era=Era.MODERN, at_least=1),
    Series(work="list of 10 tools, session", ask=LIST, era=Era.SESSION, at_least=1),
    Series(work="list of 100 tools, modern", ask=LIST, era=Era.MODERN, at_least=1, tools=100),
    Series(work="list of 100 tools, session", ask=LIST, era=Era.SESSION, at_least=1, tools=100),
    Series(work="list of 1,000 tools, modern", ask=LIST, era=Era.MODERN, at_least=100, tools=1000),
    Series(work="list of 1,000 tools, session", ask=LIST, era=Era.SESSION, at_least=100, tools=1000),
)


async def throughput(
    ours: Contender, theirs: Contender, series: Sequence[Series], *, rounds: int, seconds: float
) -> list[Row]:
    """The median of the rounds of each."""
    costs: defaultdict[tuple[str, Contender], list[Cost]] = defaultdict(list)
    async with AsyncExitStack() as stack:
        servers = {
            (contender, kind): await stack.enter_async_context(_serving(contender, *kind))
            for kind in dict.fromkeys((each.tools, each.is_stdio) for each in series)
            for contender in (ours, theirs)
        }
        for _ in range(rounds):
            for each in series:
                one_round = stdio_round if each.is_stdio else http_round
                for contender in (ours, theirs):
                    server = servers[contender, (each.tools, each.is_stdio)]
                    costs[each.work, contender].append(await one_round(server, each.ask, each.era, seconds=seconds))
    return [_row(each, costs[each.work, ours], costs[each.work, theirs]) for each in series]


@asynccontextmanager
async def _serving(contender: Contender, tools: int, is_stdio: bool) -> AsyncIterator[Server]:  # noqa: FBT001 - the key
    port = None if is_stdio else free_port()
    async with started(contender.command(tools=tools, port=port), port=port or 0) as server:
        if is_stdio:
            await server.ask_line(Numbered(INITIALIZE.line(Era.SESSION))(0))
            server.tell_line(INITIALIZED)
        else:
            await first_reply(server)
        yield server


def _row(series: Series, ours: list[Cost], theirs: list[Cost]) -> Row:
    return Row(
        work=series.work,
        unit="µs",
        ours=_median_cpu(ours) * 1e6,
        theirs=_median_cpu(theirs) * 1e6,
        at_least=series.at_least,
        note=f"{_calls_per_second(ours):,.0f} and {_calls_per_second(theirs):,.0f} calls/s",
    )


def _median_cpu(costs: list[Cost]) -> float:
    return statistics.median(cost.cpu_seconds for cost in costs)


def _calls_per_second(costs: list[Cost]) -> float:
    return 1 / statistics.median(cost.wall_seconds for cost in costs)
