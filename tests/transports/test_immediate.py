"""Tests that requests without waits are handled without a task."""

import asyncio
import os
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

import orjson
import pytest

from gateway.json_types import Json
from gateway.transports.stdio.line_writer import LineWriter
from tests.transports.http_server import http_server, initialize_request
from tests.transports.test_stdio import wired

LIST: Json = {"jsonrpc": "2.0", "id": 7, "method": "tools/list"}
PING: Json = {"jsonrpc": "2.0", "id": 8, "method": "ping"}
CALL: Json = {"jsonrpc": "2.0", "id": 9, "method": "tools/call", "params": {"name": "echo", "arguments": {"text": "x"}}}


@contextmanager
def tasks_made() -> Iterator[list[str]]:
    """Yield the names of our coroutines for which tasks are created."""
    loop, names = asyncio.get_running_loop(), list[str]()

    def make(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, Any], **given: Any) -> asyncio.Task[Any]:
        if work.cr_code.co_filename.find("/gateway/") > 0:  # type: ignore[attr-defined]
            names.append(work.cr_code.co_qualname)  # type: ignore[attr-defined]
        return asyncio.Task(work, loop=loop, **given)

    loop.set_task_factory(make)  # type: ignore[arg-type]
    yield names
    loop.set_task_factory(None)


@pytest.mark.parametrize(("request_", "tasks"), [(LIST, 0), (PING, 0), (CALL, 1)], ids=["list", "ping", "call"])
async def test_over_stdio(request_: Json, tasks: int) -> None:
    async with wired() as wire:
        await wire.ask(initialize_request("2025-11-25"))
        with tasks_made() as made:
            assert "result" in await wire.ask(request_)
        assert len(made) == tasks, made


@pytest.mark.parametrize(("request_", "tasks"), [(LIST, 0), (PING, 0), (CALL, 1)], ids=["list", "ping", "call"])
async def test_in_a_session_over_http(request_: Json, tasks: int) -> None:
    async with http_server() as served:
        session = await served.initialize()
        with tasks_made() as made:
            answer = await served.send(request_, {"Mcp-Session-Id": session})
        assert "result" in answer.json
        assert len(made) == tasks, made


async def test_a_client_that_reads_only_event_streams_gets_one() -> None:
    async with http_server() as served:
        session = await served.initialize()
        answer = await served.send(LIST, {"Mcp-Session-Id": session, "Accept": "text/event-stream"})
        assert answer.headers["Content-Type"] == "text/event-stream"
        assert "result" in answer.events[-1]


async def test_many_lines_do_not_starve_other_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    turns, turn_of_answer = 0, list[int]()
    write_now = LineWriter.write_now

    def count(self: LineWriter, line: bytes) -> bool:
        turn_of_answer.append(turns)
        return write_now(self, line)

    monkeypatch.setattr(LineWriter, "write_now", count)
    async with wired() as wire:
        await wire.ask(initialize_request("2025-11-25"))
        turn_of_answer.clear()
        os.write(wire.to_server, b"".join(orjson.dumps(PING) + b"\n" for _ in range(200)))
        while len(turn_of_answer) < 200:
            turns += 1
            await asyncio.sleep(0)
    assert turn_of_answer[-1] > turn_of_answer[0]
