"""Tools that a test controls through files, so that calls can reach different replicas."""

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
CALL_STATES = Path(os.environ.get("MCP_GATEWAY_TEST_CALL_STATES", OWN))
"""A directory that all processes of a test share."""


class CallState:
    """The state of a call, stored in files."""

    def __init__(self, key: str) -> None:
        self._state = CALL_STATES / f"{sha256(key.encode()).hexdigest()}.state"
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
    """Run until released."""
    call = CallState(key)
    call.become("running")
    await context.progress(1)
    try:
        await until(lambda: call.is_released)
    except asyncio.CancelledError:
        call.become("cancelled")
        raise
    call.become("finished")
    return "released"


async def reach(key: str, state: str) -> str:
    """Wait until a call of `wait` has reached a state, and return its state."""
    call = CallState(key)
    try:
        async with asyncio.timeout(10):
            await until(lambda: call.state == state)
    except TimeoutError:
        pass
    return call.state


async def release(key: str) -> str:
    """Release a call of `wait`."""
    CallState(key).release()
    return "done"


async def count(values: list[float], context: Context) -> str:
    """Report these values as progress."""
    for value in values:
        await context.progress(value, 100, f"at {value:g}")
    return "counted"


async def talk(context: Context) -> str:
    """Log a message at each level."""
    for level in LEVELS:
        context.log(level, {"said": level}, "talker")
    return "said"


async def change(kind: ListKind, context: Context) -> str:
    """Announce a changed list."""
    context.notify_changed(kind)
    return "done"


async def switch(kind: ListKind, name: str, on: bool, context: Context) -> str:  # noqa: FBT001 - an input's name
    """Disable or enable a primitive."""
    (context.enable if on else context.disable)(kind, name)
    return "done"


async def touch(uri: str, context: Context) -> str:
    """Announce an updated resource."""
    context.resource_updated(uri)
    return "done"


def blocks() -> list[Content]:
    """Return a content block of each kind."""
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
    """Return an object as structured content."""
    return {"total": 3}


def row() -> list[int]:
    """Return a list as structured content."""
    return [1, 2, 3]


def refuses() -> str:
    """Raise a tool error."""
    raise ToolError("mend your call")


def breaks() -> str:
    """Raise an unexpected exception."""
    raise ValueError("what nobody should read")


def protests() -> str:
    """Raise a protocol error."""
    raise ProtocolError(4242, "not like this", {"why": "because"})


def crowd() -> list[str]:
    """Return more suggestions than a response can contain."""
    return [f"guest {number:03}" for number in range(150)]


async def mine(context: Context) -> str:
    """Return a text that depends on the caller."""
    return f"yours, {context.client.get('name', 'stranger')}"


async def count_oddly(context: Context) -> str:
    """Report progress values that are not finite."""
    for value in (1, float("nan"), 2, float("inf"), 3):
        context.progress(value, float("inf"))
    return "counted"
