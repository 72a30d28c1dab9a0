"""Measures calls in interleaved rounds, so that other load affects all contenders."""

import statistics
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Final

from benchmarks.contenders import CAREFUL, SDK, Contender
from benchmarks.messages import INITIALIZE, INITIALIZED, LIST, Ask, Era, Numbered, call
from benchmarks.processes import Server, started
from benchmarks.rounds import Cost, first_reply, http_round, stdio_round
from benchmarks.table import Aim, Row, cheaper, within
from tests.ports import free_port


@dataclass(frozen=True, kw_only=True)
class Series:
    """A repeated request."""

    work: str
    ask: Ask
    era: Era
    aims: Sequence[Aim] = ()
    tools: int = 10
    """The number of tools."""
    is_stdio: bool = False


_ECHO: Final = call("echo", text="Good morning")
_SHELL: Final = call("shell_echo", text="Good morning")
_HTTP: Final = call("http_get", item="morning")

SERIES: Final = (
    Series(work="content tool, modern", ask=_ECHO, era=Era.MODERN, aims=(within(2.0, CAREFUL), cheaper(4, SDK))),
    Series(work="content tool, session", ask=_ECHO, era=Era.SESSION, aims=(within(2.0, CAREFUL), cheaper(4, SDK))),
    Series(work="content tool, stdio", ask=_ECHO, era=Era.SESSION, aims=(within(2.2, CAREFUL),), is_stdio=True),
    Series(work="HTTP tool, modern", ask=_HTTP, era=Era.MODERN, aims=(cheaper(4, SDK),)),
    Series(work="HTTP tool, session", ask=_HTTP, era=Era.SESSION, aims=(cheaper(4, SDK),)),
    Series(work="shell tool, modern", ask=_SHELL, era=Era.MODERN, aims=(within(1.4, CAREFUL),)),
    Series(work="shell tool, session", ask=_SHELL, era=Era.SESSION, aims=(within(1.4, CAREFUL),)),
    Series(work="list of 10 tools, modern", ask=LIST, era=Era.MODERN),
    Series(work="list of 10 tools, session", ask=LIST, era=Era.SESSION),
    Series(work="list of 100 tools, modern", ask=LIST, era=Era.MODERN, tools=100),
    Series(work="list of 100 tools, session", ask=LIST, era=Era.SESSION, tools=100),
    Series(work="list of 1,000 tools, modern", ask=LIST, era=Era.MODERN, aims=(within(1.2, CAREFUL),), tools=1000),
    Series(work="list of 1,000 tools, session", ask=LIST, era=Era.SESSION, aims=(within(1.2, CAREFUL),), tools=1000),
)


async def throughput(
    contenders: Sequence[Contender], series: Sequence[Series], *, rounds: int, seconds: float
) -> list[Row]:
    """Return a row per series with the median of each contender's rounds."""
    async with AsyncExitStack() as stack:
        servers = {
            (contender, kind): await stack.enter_async_context(_serving(contender, *kind))
            for kind in dict.fromkeys((each.tools, each.is_stdio) for each in series)
            for contender in contenders
        }
        cells = [
            Cell(
                work=each.work,
                name=contender.name,
                server=servers[contender, (each.tools, each.is_stdio)],
                ask=each.ask,
                era=each.era,
                is_stdio=each.is_stdio,
            )
            for each in series
            for contender in contenders
        ]
        costs = await interleaved(cells, rounds=rounds, seconds=seconds)
    return [row(each.work, costs, aims=each.aims) for each in series]


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A figure of the table: a request to one server."""

    work: str
    name: str
    """The column."""
    server: Server
    ask: Ask
    era: Era
    is_stdio: bool = False


Costs = Mapping[tuple[str, str], Sequence[Cost]]
"""The costs of all rounds by work and column."""


async def interleaved(cells: Sequence[Cell], *, rounds: int, seconds: float) -> Costs:
    """Measure each cell once per round."""
    costs: dict[tuple[str, str], list[Cost]] = {(cell.work, cell.name): [] for cell in cells}
    for _ in range(rounds):
        for cell in cells:
            one_round = stdio_round if cell.is_stdio else http_round
            costs[cell.work, cell.name].append(await one_round(cell.server, cell.ask, cell.era, seconds=seconds))
    return costs


def row(work: str, costs: Costs, *, aims: Sequence[Aim]) -> Row:
    """Return a row with the medians of all cells with this work."""
    found = {name: each for (of, name), each in costs.items() if of == work}
    return Row(
        work=work,
        unit="µs",
        figures={name: _median_cpu(each) * 1e6 for name, each in found.items()},
        aims=aims,
        note=", ".join(f"{_calls_per_second(each):,.0f}" for each in found.values()) + " calls/s",
    )


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


def _median_cpu(costs: Sequence[Cost]) -> float:
    return statistics.median(cost.cpu_seconds for cost in costs)


def _calls_per_second(costs: Sequence[Cost]) -> float:
    return 1 / statistics.median(cost.wall_seconds for cost in costs)
