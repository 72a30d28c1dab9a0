"""Measures queries: the `sql` tool on SQLite, a Python tool and MCP Toolbox."""

import json
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks.contenders import OURS, Gateway, yaml
from benchmarks.messages import Era, call
from benchmarks.processes import Server
from benchmarks.proxies import TOOLBOX, toolbox_serving
from benchmarks.relays import ready
from benchmarks.table import Row, within
from benchmarks.throughput import Cell, interleaved, row

PYTHON: Final = "Python tool"
COLUMNS: Final = (OURS, PYTHON, TOOLBOX)
WORK: Final = "SQL tool, session"

_QUERY: Final = "SELECT id, customer, total FROM orders WHERE customer = {} ORDER BY id"
_PLUGIN: Final = '''
"""A tool that does by hand what an `sql` backend does."""

import sqlite3

CONNECTION = sqlite3.connect("file:{path}?mode=ro", uri=True, check_same_thread=False)


def orders(customer: str) -> dict:
    """Orders of a customer."""
    cursor = CONNECTION.execute("{query}", (customer,))
    columns = [column[0] for column in cursor.description]
    rows = [dict(zip(columns, row)) for row in cursor.fetchmany(1000)]
    return {{"columns": columns, "rows": rows, "truncated": False}}
'''


async def queries(gateway: Gateway, toolbox: str | None, *, rounds: int, seconds: float) -> list[Row]:
    """Return a row for reading 20 of ten thousand rows by an index."""
    path = gateway.directory / "orders.db"
    _fill(path)
    async with _ours(gateway, path) as ours:
        cells = [_cell(OURS, ours, "orders"), _cell(PYTHON, ours, "python_orders")]
        if toolbox is None:
            costs = await interleaved(cells, rounds=rounds, seconds=seconds)
        else:
            command = partial(toolbox_serving, toolbox, documents=_documents(path), directory=gateway.directory)
            async with ready(command, Era.SESSION) as server:
                costs = await interleaved([*cells, _cell(TOOLBOX, server, "orders")], rounds=rounds, seconds=seconds)
    return [row(WORK, costs, aims=(within(2, PYTHON),))]


def _cell(name: str, server: Server, tool: str) -> Cell:
    return Cell(work=WORK, name=name, server=server, ask=call(tool, customer="c7"), era=Era.SESSION)


def _fill(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, customer TEXT, total REAL)")
        connection.execute("CREATE INDEX by_customer ON orders (customer)")
        rows = ((f"c{number % 500}", number * 1.5) for number in range(10_000))
        connection.executemany("INSERT INTO orders (customer, total) VALUES (?, ?)", rows)
    connection.close()


@asynccontextmanager
async def _ours(gateway: Gateway, path: Path) -> AsyncIterator[Server]:
    plugins = gateway.directory / "plugins"
    plugins.mkdir(exist_ok=True)
    (plugins / "by_hand.py").write_text(_PLUGIN.format(path=path, query=_QUERY.format("?")))
    document = {
        "server": {"name": "benchmark"},
        "plugins": ["plugins"],
        "databases": {"orders": {"url": f"sqlite:{path}"}},
        "tools": {
            "orders": {
                "description": "Orders of a customer.",
                "input": {"customer": {"type": "string", "description": "Whose."}},
                "sql": {"database": "orders", "query": _QUERY.format(":customer")},
            },
            "python_orders": {"python": "by_hand:orders"},
        },
    }
    file = gateway.directory / "queries.yaml"
    file.write_text(yaml(document))
    async with ready(partial(gateway.serve, file), Era.SESSION) as server:
        yield server


def _documents(path: Path) -> list[str]:
    parameter = {"name": "customer", "type": "string", "description": "Whose."}
    tool = {
        "kind": "tool",
        "name": "orders",
        "type": "sqlite-sql",
        "source": "orders",
        "description": "Orders of a customer.",
        "statement": _QUERY.format("?"),
        "parameters": [parameter],
    }
    source = {"kind": "source", "name": "orders", "type": "sqlite", "database": str(path)}
    return [json.dumps(source), json.dumps(tool)]
