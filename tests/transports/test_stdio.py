"""Tests for MCP on pipes."""

import asyncio
import os
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

import orjson
import pytest

from gateway.json_types import Json
from gateway.transports.stdio import line_writer
from gateway.transports.stdio.stdio import StandardStreams, Stdio
from tests.captured_logs import capture_logs
from tests.messages import initialize_request, legacy_request, modern_request
from tests.transports.http_server import ToolControl, call, dispatching
from tests.waiting import until

INITIALIZED = {"jsonrpc": "2.0", "method": "notifications/initialized"}


@dataclass(kw_only=True)
class Wire:
    """The client's end of the pipes."""

    control: ToolControl
    stdio: Stdio
    serving: asyncio.Task[None]
    reader: asyncio.StreamReader
    to_server: int

    def send(self, *messages: Json) -> None:
        for message in messages:
            data = message if isinstance(message, bytes) else orjson.dumps(message) + b"\n"
            os.write(self.to_server, data)

    async def receive(self) -> Json:
        async with asyncio.timeout(20):
            return orjson.loads(await self.reader.readline())

    async def ask(self, message: Json) -> Json:
        self.send(message)
        return await self.receive()

    async def rest(self) -> list[Json]:
        """Return everything until the server ends."""
        async with asyncio.timeout(10):
            await self.serving
        self.hang_up()
        return [orjson.loads(line) for line in (await self.reader.read()).splitlines()]

    def hang_up(self) -> None:
        """Close the server's input."""
        with suppress(OSError):
            os.close(self.to_server)


@asynccontextmanager
async def wired(*, max_line: int = 1_000_000) -> AsyncIterator[Wire]:
    control = ToolControl()
    requests_out, requests_in = os.pipe()
    answers_out, answers_in = os.pipe()
    streams = StandardStreams(requests_out, answers_in)
    async with dispatching(control) as dispatcher:
        reader = asyncio.StreamReader(limit=10_000_000)
        loop = asyncio.get_running_loop()
        transport, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(answers_out, "rb", 0)
        )
        stdio = Stdio(dispatcher=dispatcher, streams=streams, max_line=max_line)
        serving = asyncio.create_task(stdio.serve())
        serving.add_done_callback(lambda _: os.close(answers_in))
        wire = Wire(control=control, stdio=stdio, serving=serving, reader=reader, to_server=requests_in)
        try:
            yield wire
        finally:
            wire.hang_up()
            async with asyncio.timeout(10):
                await asyncio.wait([serving])
            os.close(requests_out)
            transport.close()


@pytest.fixture
async def wire() -> AsyncIterator[Wire]:
    async with wired() as it:
        yield it


def cancel(request_id: Json) -> Json:
    return {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": request_id}}


class TestLines:
    async def test_constant_progress_does_not_starve_other_calls(self, wire: Wire) -> None:
        wire.send(modern_request("tools/call", {"name": "flood", "_meta": {"progressToken": 1}}, request_id="f"))
        wire.send(legacy_request("ping", request_id="p"))
        while (await wire.receive()).get("id") != "p":
            pass
        wire.send(cancel("f"))
        await until(wire.control.cancelled.is_set)

    async def test_line_over_the_limit_is_an_error_and_the_session_continues(self) -> None:
        async with wired(max_line=1000) as wire:
            wire.send(b"x" * 50_000 + b"\n")
            answer = await wire.receive()
            assert answer["error"]["code"] == -32600
            assert "listen.max_body" in answer["error"]["message"]
            assert "result" in await wire.ask(legacy_request("ping"))

    async def test_empty_lines_and_carriage_returns_are_ignored(self, wire: Wire) -> None:
        wire.send(b"\n\r\n  \n", orjson.dumps(legacy_request("ping")) + b"\r\n")
        assert "result" in await wire.receive()


class TestCancellation:
    @pytest.mark.parametrize("is_modern", [True, False])
    async def test_request_can_be_cancelled_by_the_next_line(self, wire: Wire, *, is_modern: bool) -> None:
        if not is_modern:
            await wire.ask(initialize_request())
        waiting = (
            modern_request("tools/call", {"name": "wait"}, request_id="w")
            if is_modern
            else call("wait", request_id="w")
        )
        wire.send(b"".join(orjson.dumps(message) + b"\n" for message in (waiting, cancel("w"))))
        assert (await wire.ask(legacy_request("ping", request_id="after")))["id"] == "after"

        wire.control.release.set()
        wire.hang_up()
        assert await wire.rest() == []

    async def test_id_in_use_is_rejected(self, wire: Wire) -> None:
        wire.send(modern_request("tools/call", {"name": "wait"}, request_id=1))
        await until(wire.control.started.is_set)
        assert (await wire.ask(modern_request("tools/list", request_id=1)))["error"]["code"] == -32600
        wire.control.release.set()
        assert "result" in await wire.receive()


class TestTheEnd:
    async def test_draining_finishes_calls_and_rejects_new_ones(self, wire: Wire) -> None:
        wire.send(modern_request("tools/call", {"name": "wait"}))
        await until(wire.control.started.is_set)
        draining = asyncio.create_task(wire.stdio.drain(20))
        await asyncio.sleep(0)
        echo = modern_request("tools/call", {"name": "echo", "arguments": {"text": "late"}})
        assert (await wire.ask(echo | {"id": 2}))["result"]["content"][0]["text"] == "late"
        refused = await wire.ask(initialize_request("2025-11-25") | {"id": 3})
        assert (refused["id"], refused["error"]["code"]) == (3, -32603)
        wire.control.release.set()
        assert (await wire.receive())["id"] == 1
        async with asyncio.timeout(20):
            await draining

    async def test_calls_after_the_drain_are_rejected(self, wire: Wire) -> None:
        await wire.stdio.drain(20)
        for request_id in (2, 3):
            echo = modern_request("tools/call", {"name": "echo", "arguments": {"text": "late"}})
            answer = await wire.ask(echo | {"id": request_id})
            assert (answer["id"], answer["error"]["code"]) == (request_id, -32603)
            assert "shutting down" in answer["error"]["message"]

    async def test_client_that_never_reads_is_not_read_further(self) -> None:
        requests_out, requests_in = os.pipe()
        answers_out, answers_in = os.pipe()
        os.set_blocking(requests_in, False)
        arguments = {"text": "x" * 30_000}
        line = orjson.dumps(modern_request("tools/call", {"name": "echo", "arguments": arguments})) + b"\n"
        async with dispatching(ToolControl()) as dispatcher, asyncio.timeout(20):
            streams = StandardStreams(requests_out, answers_in)
            serving = asyncio.create_task(Stdio(dispatcher=dispatcher, streams=streams, max_line=100_000).serve())
            sent = stalled = 0
            while stalled < 1000:
                try:
                    sent += os.write(requests_in, line)
                    stalled = 0
                except BlockingIOError:
                    stalled += 1
                    await asyncio.sleep(0)
            assert sent < 60_000_000
            os.close(requests_in)
            await serving
            os.close(answers_out)
            for thread in threading.enumerate():  # a later user of the descriptor would otherwise get the rest
                if thread.name == "stdout writer":
                    await asyncio.to_thread(thread.join)
        for descriptor in (requests_out, answers_in):
            os.close(descriptor)

    @pytest.mark.parametrize("is_batch", [False, True])
    async def test_unread_responses_are_dropped_with_an_error(
        self, monkeypatch: pytest.MonkeyPatch, *, is_batch: bool
    ) -> None:
        monkeypatch.setattr(line_writer, "STANDSTILL_SECONDS", 0.01)
        requests_out, requests_in = os.pipe()
        answers_out, answers_in = os.pipe()
        calls: list[Json] = [call("large", size=2_000_000) | {"id": number} for number in range(8)]
        messages = [initialize_request("2025-03-26"), *([each] for each in calls)] if is_batch else calls
        if not is_batch:
            messages.insert(0, initialize_request("2025-06-18"))
        os.write(requests_in, b"".join(orjson.dumps(each) + b"\n" for each in messages))
        async with dispatching(ToolControl()) as dispatcher, asyncio.timeout(20):
            streams = StandardStreams(requests_out, answers_in)
            stdio = Stdio(dispatcher=dispatcher, streams=streams, max_line=100_000, max_unread=5_000_000)
            with capture_logs() as logs:
                serving = asyncio.create_task(stdio.serve())
                # One is being written and two wait.
                while sum(each["event"] == "response dropped" for each in logs) < 5:
                    await asyncio.sleep(0.001)
            with os.fdopen(answers_out, "rb") as answers:
                lines = [orjson.loads(await asyncio.to_thread(answers.readline)) for _ in range(9)]
                os.close(requests_in)
                await serving
        replies = [line[0] if isinstance(line, list) else line for line in lines[1:]]
        assert sorted(reply["id"] for reply in replies) == list(range(8))
        assert sum("limits.unread" in reply.get("error", {}).get("message", "") for reply in replies) == 5
        for descriptor in (requests_out, answers_in):
            os.close(descriptor)
