"""Measures the cost of durable sessions and tasks."""

import json
import statistics
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from benchmarks.connection import connected
from benchmarks.contenders import OURS, Gateway
from benchmarks.messages import TASKS, Ask, Era, call, post
from benchmarks.processes import Server, started
from benchmarks.rounds import first_reply, http_round
from benchmarks.table import Row, at_most
from tests.ports import free_port

_TMPFS: Final = Path("/dev/shm")  # noqa: S108 - excludes the disk from the measurement
_FILE: Final = """
tools:
  echo:
    input: {text: string}
    content: "{{ text }}"
    task: optional
"""
_ECHO: Final = call("echo", text="Good morning")
_TASK: Final = Ask(_ECHO.method, _ECHO.params, capabilities=TASKS)


async def durable(gateway: Gateway, *, rounds: int, seconds: float) -> list[Row]:
    """Return rows for creating a task, polling it, and calling in a session."""
    costs: dict[str, list[float]] = {"plain": [], "create": [], "poll": [], "memory": [], "SQLite": []}

    async def measure(what: str, server: Server, ask: Ask, era: Era) -> None:
        costs[what].append((await http_round(server, ask, era, seconds=seconds)).cpu_seconds * 1e6)

    with tempfile.TemporaryDirectory(dir=_TMPFS if _TMPFS.is_dir() else None) as directory:
        file, state = _file(Path(directory)), f"{directory}/state"  # in the directory of the file, it would be watched
        async with _serving(gateway, file, state=state) as kept, _serving(gateway, file, state="none") as forgotten:
            poll = Ask("tasks/get", {"taskId": await _created(kept)}, capabilities=TASKS)
            for _ in range(rounds):
                await measure("plain", kept, _ECHO, Era.MODERN)
                await measure("create", kept, _TASK, Era.MODERN)
                await measure("poll", kept, poll, Era.MODERN)
                await measure("memory", forgotten, _ECHO, Era.SESSION)
                await measure("SQLite", kept, _ECHO, Era.SESSION)
    found = {name: statistics.median(each) for name, each in costs.items()}
    return [
        _ratio("creating a task, to a plain call", found["create"], found["plain"], aim=3),
        _ratio("polling a task, to a plain call", found["poll"], found["plain"], aim=1.5),
        _ratio("a session's call, SQLite to memory", found["SQLite"], found["memory"], aim=1.3),
    ]


def _file(directory: Path) -> Path:
    path = directory / "config.yaml"
    path.write_text(_FILE)
    return path


def _ratio(work: str, figure: float, reference: float, *, aim: float) -> Row:
    return Row(
        work=work,
        unit="×",
        figures={OURS: figure / reference},
        aims=(at_most(aim, "×"),),
        note=f"{figure:.0f} to {reference:.0f} µs",
    )


@asynccontextmanager
async def _serving(gateway: Gateway, file: Path, *, state: str) -> AsyncIterator[Server]:
    port = free_port()
    async with started([*gateway.serve(file, port=port), "--state-dir", state], port=port) as server:
        await first_reply(server)
        yield server


async def _created(server: Server) -> str:
    """Create a task and return its id."""
    async with connected(server.port, count=1) as [connection]:
        body = (await connection.ask(post(_TASK, Era.MODERN)(0))).checked().body
    task_id: str = json.loads(body)["result"]["taskId"]
    return task_id
