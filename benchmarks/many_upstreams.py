"""Measures many idle upstreams: listing their tools and their memory."""

from collections.abc import Mapping
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks.connection import UnexpectedAnswerError
from benchmarks.contenders import OURS, Gateway, yaml
from benchmarks.messages import LIST, Era
from benchmarks.proxies import careful_server
from benchmarks.relays import OWN, ready
from benchmarks.rounds import first_reply
from benchmarks.table import Row, at_most, within
from benchmarks.throughput import Cell, interleaved, row

UPSTREAMS: Final = 100
TOOLS_EACH: Final = 20
MANY: Final = "list of 2,000 tools of 100 upstreams, modern"
_MEMORY: Final = "memory of 100 upstreams"


async def many_upstreams(gateway: Gateway, *, rounds: int, seconds: float) -> list[Row]:
    """Return a row for the list compared with own tools, and one for the additional memory."""
    async with AsyncExitStack() as stack:
        server = partial(careful_server, gateway.upstream, tools=TOOLS_EACH)
        upstream = await stack.enter_async_context(ready(server, Era.MODERN))
        entry = {"url": f"http://127.0.0.1:{upstream.port}/mcp", "allow_private": ["127.0.0.0/8"]}
        served: dict[str, dict[str, object]] = {
            OURS: {"upstreams": {f"up{number}": entry for number in range(UPSTREAMS)}},
            OWN: {"tools": {f"own_tool_{number}": _TOOL for number in range(UPSTREAMS * TOOLS_EACH)}},
            "": {"tools": {"own_tool": _TOOL}},
        }
        servers = {
            name: await stack.enter_async_context(
                ready(partial(gateway.serve, _file(gateway.directory, number, document)), Era.MODERN)
            )
            for number, (name, document) in enumerate(served.items())
        }
        listed = await first_reply(servers[OURS])
        if listed.count(b'"inputSchema"') != UPSTREAMS * TOOLS_EACH:
            raise UnexpectedAnswerError(f"the list has {listed.count(b'inputSchema')} tools")
        cells = [Cell(work=MANY, name=name, server=servers[name], ask=LIST, era=Era.MODERN) for name in (OURS, OWN)]
        costs = await interleaved(cells, rounds=rounds, seconds=seconds)
        none, *resident = (servers[name].resident_bytes / 2**20 for name in ("", OURS, OWN))
    return [
        row(MANY, costs, aims=(within(1.1, OWN),)),
        Row(
            work=_MEMORY,
            unit="MiB",
            figures=dict(zip((OURS, OWN), (found - none for found in resident), strict=True)),
            aims=(at_most(60, "MiB"),),
            note="above a server of one tool",
        ),
    ]


_TOOL: Final = {
    "description": "Returns the given text.",
    "input": {
        "path": {"type": "string"},
        "depth": {"type": "integer", "required": False},
        "quiet": {"type": "boolean", "required": False},
    },
    "content": "{{ path }}",
}
"""Return an own tool with the same definition as an upstream's."""


def _file(directory: Path, number: int, document: Mapping[str, object]) -> Path:
    path = directory / f"many-{number}.yaml"
    path.write_text(yaml({"server": {"name": "benchmark", "page_size": UPSTREAMS * TOOLS_EACH}, **document}))
    return path
