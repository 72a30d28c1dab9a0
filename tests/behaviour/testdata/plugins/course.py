"""Tools whose course a test decides, at whichever replica each of its calls comes to."""

import asyncio
import atexit
import os
import shutil
import tempfile
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

from gateway.plugin import (
    Audio,
    Content,
    Context,
    EmbeddedResource,
    Image,
    ListKind,
    LogLevel,
    ProtocolError,
    ResourceLink,
    Text,
    ToolError,
)

LEVELS: tuple[LogLevel, ...] = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
OWN = tempfile.mkdtemp()
atexit.register(shutil.rmtree, OWN, ignore_errors=True)
COURSES = Path(os.environ.get("MCP_GATEWAY_TEST_COURSES", OWN))
"""A directory that all processes of a test have."""


class Course:
    """How far a call has come, in files."""

    def __init__(self, key: str) -> None:
        self._state = COURSES / f"{sha256(key.encode()).hexdigest()}.state"
        self._released = self._state.with_suffix(".released")

    @property
    def state(self) -> str:
        return self._state.read_text() if self._state.exists() else "not begun"

    @property
    def is_released(self) -> bool:
        return self._released.exists()

    def become(self, state: str) -> None:
        new = self._state.with_suffix(".new")
        new.write_text(state)
        new.replace(self._state)

    def release(self) -> None:
        self._released.touch()


async def until(is_so: Callable[[], bool]) -> None:
    while not is_so():
        await asyncio.sleep(0.01)


async def wait(key: str, context: Context) -> str:
    """Goes on until released."""
    course = Course(key)
    course.become("running")
    await context.progress(1)
    try:
        await until(lambda: course.is_released)
    except asyncio.CancelledError:
        course.become("cancelled")
        raise
    course.become("finished")
    return "released"


async def reach(key: str, state: str) -> str:
    """Waits until a call of `wait` has come this far, and says how far it has come."""
    course = Course(key)
    try:
        async with asyncio.timeout(10):
            await until(lambda: course.state == state)
    except TimeoutError:
        pass
    return course.state


async def release(key: str) -> str:
    """Lets a call of `wait` end."""
    Course(key).release()
    return "done"


async def count(values: list[float], context: Context) -> str:
    """Reports these values."""
    for value in values:
        await context.progress(value, 100, f"at {value:g}")
    return "counted"


async def talk(context: Context) -> str:
    """Logs once at each level."""
    for level in LEVELS:
        context.log(level, {"said": level}, "talker")
    return "said"


async def change(kind: ListKind, context: Context) -> str:
    """Says that a list has changed."""
    context.notify_changed(kind)
    return "done"


async def switch(kind: ListKind, name: str, on: bool, context: Context) -> str:  # noqa: FBT001 - an input's name
    """Takes a primitive off its list, or puts it back."""
    (context.enable if on else context.disable)(kind, name)
    return "done"


async def touch(uri: str, context: Context) -> str:
    """Says that a resource was written."""
    context.resource_updated(uri)
    return "done"


def blocks() -> list[Content]:
    """One block of each kind."""
    noted = {"audience": ["user"], "priority": 0.5, "lastModified": "2026-01-02T03:04:05Z"}
    return [
        Text("plain", annotations=noted),
        Image(b"\x89PNG", "image/png"),
        Audio(b"RIFF", "audio/wav"),
        EmbeddedResource("test://embedded", "inside", "text/plain"),
        EmbeddedResource("test://bytes", b"\x00\x01", "application/octet-stream"),
        ResourceLink(
            uri="test://note", name="note", title="A note", description="To read", mime_type="text/plain", size=3
        ),
    ]


def figures() -> dict[str, int]:
    """An object."""
    return {"total": 3}


def row() -> list[int]:
    """Structured, and no object."""
    return [1, 2, 3]


def refuses() -> str:
    """Fails in its own words."""
    raise ToolError("mend your call")


def breaks() -> str:
    """Has a bug."""
    raise ValueError("what nobody should read")


def protests() -> str:
    """Answers with an error of the protocol."""
    raise ProtocolError(4242, "not like this", {"why": "because"})


def crowd() -> list[str]:
    """More suggestions than one answer may hold."""
    return [f"guest {number:03}" for number in range(150)]


async def mine(context: Context) -> str:
    """What differs by caller."""
    return f"yours, {context.client.get('name', 'stranger')}"


async def count_oddly(context: Context) -> str:
    """Reports what JSON has no number for."""
    for value in (1, float("nan"), 2, float("inf"), 3):
        context.progress(value, float("inf"))
    return "counted"
