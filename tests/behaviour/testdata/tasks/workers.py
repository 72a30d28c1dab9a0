"""Functions that wait, ask and fail, for tasks. Tests reach `GATES` through the tool's argument."""

import asyncio
import time
from itertools import count
from pathlib import Path

from gateway.plugin import Context, ProtocolError, SyncContext, ToolError

_TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}


async def waits(context: Context, file: str) -> str:
    """Wait until a file exists, and return its content."""
    await context.progress(1, 4, "waiting")
    while not (path := Path(file)).exists():
        await asyncio.sleep(0.005)
    return path.read_text()


async def begins(began: str, go: str) -> str:
    """Record the start, and wait until a file exists."""
    note = Path(began)
    note.write_text(f"{note.read_text() if note.exists() else ''}begun\n")
    while not Path(go).exists():
        await asyncio.sleep(0.005)
    return f"begun {len(Path(began).read_text().split())} times"


def in_a_thread(context: SyncContext, file: str) -> str:
    """Wait in a thread until a file exists."""
    while not (path := Path(file)).exists():
        time.sleep(0.005)
        if context.cancelled:
            raise ToolError("cancelled")
    return path.read_text()


async def fails() -> str:
    """Raise a tool error."""
    raise ToolError("it does not work")


async def breaks() -> str:
    """Raise a protocol error."""
    raise ProtocolError(1234, "broken", {"why": "so"})


async def asks(context: Context) -> str:
    """Ask two questions in turn, and count a step between them."""
    first = await context.elicit("first", "First?", _TEXT)
    kept = await context.once("step", _step)
    second = await context.elicit("second", "Second?", _TEXT)
    return f"{first.content} {kept} {second.content}"


async def asks_both(context: Context) -> str:
    """Ask two questions at once."""
    one, other = await asyncio.gather(context.elicit("one", "One?", _TEXT), context.elicit("other", "Other?", _TEXT))
    return f"{one.content} {other.content}"


async def asks_where(context: Context) -> str:
    """Ask one question before the task is created, and one inside it."""
    before = await context.ask_before({"before": _question("Before?")})
    assert context.task is None or context.task.id
    inside = await context.ask_inside({"inside": _question("Inside?")})
    return f"{before['before']['content']['text']} {inside['inside']['content']['text']}"


async def about(context: Context) -> str:
    """Return facts about the task."""
    await asyncio.sleep(0.05)
    task = context.task
    return "no task" if task is None else f"{task.id} {round(task.expires_at - task.created_at)} {task.restarts_left}"


def _question(message: str) -> dict[str, object]:
    return {"method": "elicitation/create", "params": {"message": message, "requestedSchema": _TEXT}}


_steps = count(1)


async def _step() -> int:
    return next(_steps)
