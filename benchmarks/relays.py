"""Measures relayed calls, compared with own tools and with other proxies in front of the same servers.

The relayed server is `careful_aiohttp.py`. Its CPU time does not count: over HTTP it is a separate process, and on
stdio a child that has not ended (see `Server.cpu_seconds`).
"""

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks.contenders import OURS, Gateway, working_tools, yaml
from benchmarks.messages import Era, call
from benchmarks.processes import Server, started
from benchmarks.proxies import FASTMCP, MCP_PROXY, TOOLBOX, Others, careful_server, fastmcp_proxy, mcp_proxy, toolbox
from benchmarks.rounds import first_reply
from benchmarks.table import Aim, Row, cheaper, within
from benchmarks.throughput import Cell, interleaved, row
from tests.ports import free_port

Command = Callable[..., Sequence[str]]
"""Returns the command of a server for a port."""
OWN: Final = "own tool"
"""The own tool that relaying is compared with."""
COLUMNS: Final = (OURS, OWN, FASTMCP, MCP_PROXY, TOOLBOX)


@dataclass(frozen=True, kw_only=True)
class Relaying:
    """A connection to an upstream with clients of one era."""

    work: str
    upstream: str
    """The entry in our file."""
    own_tool: str
    era: Era
    aims: Sequence[Aim] = ()
    is_stdio: bool = False


RELAYING: Final = (
    Relaying(
        work="relayed to modern HTTP, modern",
        upstream="modern",
        own_tool="http_get",
        era=Era.MODERN,
        aims=(within(1.5, OWN), cheaper(8, FASTMCP)),
    ),
    Relaying(work="relayed to legacy HTTP, session", upstream="legacy", own_tool="http_get", era=Era.SESSION),
    Relaying(
        work="relayed to stdio, modern",
        upstream="child",
        own_tool="echo",
        era=Era.MODERN,
        aims=(within(2, OWN),),
        is_stdio=True,
    ),
    Relaying(
        work="relayed to stdio, session",
        upstream="child",
        own_tool="echo",
        era=Era.SESSION,
        aims=(within(2, OWN),),
        is_stdio=True,
    ),
)
_BESIDE_TOOLBOX: Final = "HTTP tool, session"
_ARGUMENTS: Final = {"echo": {"text": "Good morning"}, "http_get": {"item": "morning"}}


async def relays(gateway: Gateway, others: Others, *, only: str, rounds: int, seconds: float) -> list[Row]:
    """Return a row for each connection, and one for the HTTP tool beside MCP Toolbox.

    `only` filters rows by name.
    """
    relaying = [each for each in RELAYING if only in each.work]
    program = others.toolbox if only in _BESIDE_TOOLBOX else None
    if not relaying and program is None:
        return []
    service = gateway.upstream
    async with AsyncExitStack() as stack:
        upstream = await stack.enter_async_context(ready(partial(careful_server, service), Era.MODERN))
        origin = f"http://127.0.0.1:{upstream.port}"
        url = f"{origin}/mcp"
        file = _file(gateway.directory, service=origin, url=url)
        ours = await stack.enter_async_context(ready(partial(gateway.serve, file), Era.MODERN))
        cells: list[Cell] = []
        for each in relaying:
            cells.append(_cell(each.work, OURS, ours, tool=f"{each.upstream}_echo", era=each.era))
            cells.append(_cell(each.work, OWN, ours, tool=each.own_tool, era=each.era))
            for name, command in _proxies(each, others, service=service, url=url):
                proxy = await stack.enter_async_context(ready(command, each.era))
                cells.append(_cell(each.work, name, proxy, tool="echo", era=each.era))
        if program is not None:
            command = partial(toolbox, program, service=origin, directory=gateway.directory)
            server = await stack.enter_async_context(ready(command, Era.SESSION))
            cells.append(_cell(_BESIDE_TOOLBOX, OURS, ours, tool="http_get", era=Era.SESSION))
            cells.append(_cell(_BESIDE_TOOLBOX, TOOLBOX, server, tool="http_get", era=Era.SESSION))
        costs = await interleaved(cells, rounds=rounds, seconds=seconds)
    rows = [row(each.work, costs, aims=each.aims) for each in relaying]
    return rows if program is None else [*rows, row(_BESIDE_TOOLBOX, costs, aims=(within(1.3, TOOLBOX),))]


def _file(directory: Path, *, service: str, url: str) -> Path:
    """Write the file with a shared upstream session, so that rounds do not open new ones."""
    over_http = {"url": url, "session": "shared", "allow_private": ["127.0.0.0/8"]}
    document = {
        "server": {"name": "benchmark"},
        "tools": working_tools(service),
        "upstreams": {
            "modern": {**over_http, "era": "modern"},
            "legacy": {**over_http, "era": "legacy"},
            "child": {"command": careful_server(service), "session": "shared", "era": "legacy"},
        },
    }
    path = directory / "relays.yaml"
    path.write_text(yaml(document))
    return path


def _proxies(each: Relaying, others: Others, *, service: str, url: str) -> Iterator[tuple[str, Command]]:
    child = careful_server(service) if each.is_stdio else []
    if others.fastmcp is not None:
        is_legacy = each.upstream != "modern"
        target = None if each.is_stdio else url
        yield FASTMCP, partial(fastmcp_proxy, others.fastmcp, is_legacy=is_legacy, url=target, command=child)
    if others.mcp_proxy is not None and each.is_stdio and each.era is Era.SESSION:
        yield MCP_PROXY, partial(mcp_proxy, others.mcp_proxy, command=child)


def _cell(work: str, name: str, server: Server, *, tool: str, era: Era) -> Cell:
    own = tool if tool in _ARGUMENTS else "echo"
    return Cell(work=work, name=name, server=server, ask=call(tool, **_ARGUMENTS[own]), era=era)


@asynccontextmanager
async def ready(command: Command, era: Era) -> AsyncIterator[Server]:
    """Start a server on a free port and wait until it responds."""
    port = free_port()
    async with started(command(port=port), port=port) as server:
        await first_reply(server, era=era)
        yield server
