"""Tests for the number of frames and forms of a call between the socket and the executor.

A tool inspects its own stack. Work in a separate task is followed to where the task was created, so frames that only
start a task count too.
"""

import asyncio
import sys
from collections.abc import Coroutine, Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import Any, Final, NamedTuple

import pytest
from aiohttp import web

import gateway
from gateway.executors.invocation import Invocation, Outcome
from gateway.json_types import Json
from gateway.protocol.call.call import Call
from gateway.protocol.call.run import Run
from gateway.protocol.envelope import Envelope
from gateway.protocol.exchange import Caller, ChannelExchange
from gateway.transports.http.forwarded import ClientEndpoint
from gateway.transports.http.request import HttpRequest
from gateway.transports.sse.response_channel import ResponseChannel
from gateway.wire.jsonrpc import Batch, Notification, Request, Response
from tests.messages import modern_request
from tests.transports.http_server import ToolControl, http_server, said
from tests.transports.test_stdio import wired

MAX_FRAMES: Final = 11
MAX_FORMS: Final = 6
ECHO: Final[Mapping[str, Json]] = {"name": "echo", "arguments": {"text": "hello"}}
FORMS: Final = (
    *(web.BaseRequest, HttpRequest, ClientEndpoint, Caller, ResponseChannel, ChannelExchange),
    *(Request, Notification, Response, Batch, Envelope, Call, Run),
)
"""All classes that represent a request or its sender."""
_OURS: Final = f"{Path(gateway.__file__).parent}/"
_BEFORE_ITS_TASK: Final[Mapping[str, list[str]]] = {"http": [], "stdio": ["LineReader._read"]}
"""The function that the event loop calls when bytes arrive."""


class Seen(NamedTuple):
    """A frame of our own code: its function and the forms it holds."""

    function: str
    forms: frozenset[str]


class Stack:
    """Return our own frames of a call, innermost first."""

    def __init__(self) -> None:
        self.frames: list[Seen] = []
        self._made: dict[asyncio.Task[Any], list[Seen]] = {}

    def follow(self, loop: asyncio.AbstractEventLoop) -> None:
        """Remember where each task is created."""

        def make(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, Any], **given: Any) -> asyncio.Task[Any]:
            task = asyncio.Task(work, loop=loop, **given)
            self._made[task] = list(_own_frames(sys._getframe(1)))
            return task

        loop.set_task_factory(make)  # type: ignore[arg-type]

    async def echo(self, _control: ToolControl, invocation: Invocation) -> Outcome:
        task = asyncio.current_task()
        assert task is not None
        self.frames = [*_own_frames(sys._getframe(0)), *self._made.get(task, ())]
        return said(str(invocation.arguments["text"]))

    @property
    def names(self) -> list[str]:
        return [seen.function for seen in self.frames]

    @property
    def forms(self) -> frozenset[str]:
        return frozenset().union(*(seen.forms for seen in self.frames))


def _own_frames(frame: FrameType | None) -> Iterator[Seen]:
    while frame is not None:
        if frame.f_code.co_filename.startswith(_OURS):
            held = [
                f"{type(value).__module__}.{type(value).__name__}"
                for value in frame.f_locals.values()
                if isinstance(value, FORMS)
            ]
            yield Seen(frame.f_code.co_qualname, frozenset(held))
        frame = frame.f_back


@pytest.fixture
def stack(monkeypatch: pytest.MonkeyPatch) -> Stack:
    stack = Stack()

    async def echo(control: ToolControl, invocation: Invocation) -> Outcome:
        return await stack.echo(control, invocation)

    monkeypatch.setattr(ToolControl, "echo", echo)
    return stack


def hold(stack: Stack, binding: str) -> None:
    names = [*stack.names, *_BEFORE_ITS_TASK[binding]]
    print(f"{binding}: {len(names)} frames, {len(stack.forms)} forms: {sorted(stack.forms)}")  # noqa: T201 - shown by `pytest -s`
    print(*reversed(names), sep="\n  ")  # noqa: T201 - as above
    assert "Dispatcher.answer" in names
    assert len(names) <= MAX_FRAMES, names
    assert len(stack.forms) <= MAX_FORMS, stack.forms


async def test_call_over_http_has_few_frames(stack: Stack) -> None:
    async with http_server() as served:
        stack.follow(asyncio.get_running_loop())
        answer = await served.modern("tools/call", ECHO)
        assert answer.json["result"]["content"][0]["text"] == "hello"
    hold(stack, "http")


async def test_call_over_stdio_has_few_frames(stack: Stack) -> None:
    async with wired() as wire:
        stack.follow(asyncio.get_running_loop())
        answer = await wire.ask(modern_request("tools/call", ECHO))
        assert answer["result"]["content"][0]["text"] == "hello"
    hold(stack, "stdio")
