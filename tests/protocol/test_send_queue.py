"""Messages of a function are sent in order, with and without `await`."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest

from gateway.errors import ExecutionError
from gateway.json_types import Json, JsonObject
from gateway.protocol.outbox import MAX_MESSAGES, SendQueue
from tests.protocol.peers import ERAS, SECONDS, LegacyPeer, LocalGateway, ModernPeer, serve_folder
from tests.waiting import until

PLUGIN: Final = '''
import asyncio
from gateway.plugin import Context, SyncContext, ToolError

async def says(context: Context, waits: bool) -> str:
    """Send messages and a question, and fail."""
    data = ["said"]
    said = context.progress(1, 9, "first")
    if waits: await said
    for value in (2, 3):
        for said in (context.log("info", data), context.progress(value), context.log("warning", "x" * 600_000)):
            if waits: await said
        data.append("more")
    await context.elicit("name", "Who?", {"type": "object", "properties": {"name": {"type": "string"}}})
    data.append("last")
    said = context.log("error", data)
    if waits: await said
    data.append("changed")
    context.progress(4)
    raise ToolError("over")

def says_in_a_thread(context: SyncContext) -> str:
    """Send messages."""
    context.progress(1)
    context.log("info", ["said"])
    context.close_stream(5)
    context.progress(2, None, "half a character \\udcff")
    return "over"

async def errs(context: Context) -> list[str]:
    """Send invalid messages, and return the errors."""
    errors = []
    for wrong in (
        lambda: context.log("loud", 1),
        lambda: context.log("info", {"at": object()}),
        lambda: context.log("info", "\\ud800"),
        lambda: context.close_stream(-1),
        lambda: context.progress("half"),
        lambda: context.notify_changed("files"),
    ):
        try:
            wrong()
        except (ToolError, TypeError) as error:
            errors.append(f"{type(error).__name__}: {error}")
    return errors

async def floods(context: Context, waits: bool) -> str:
    """Say more than a client reads."""
    for value in range(3000):
        said = context.progress(value)
        if waits: await asyncio.wait_for(said, 0.05)
    return "over"
'''

FILE: Final = """
plugins: [.]
tools:
  says: {python: "saying:says"}
  says_in_a_thread: {python: "saying:says_in_a_thread"}
  errs: {python: "saying:errs"}
  floods: {python: "saying:floods"}
"""


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[LocalGateway]:
    (tmp_path / "saying.py").write_text(PLUGIN)
    (tmp_path / "config.yaml").write_text(FILE)
    async with serve_folder(tmp_path) as served:
        yield served


async def listening(served: LocalGateway, era: str) -> ModernPeer | LegacyPeer:
    """Return a client that requests progress and all log levels."""
    if era == "modern":
        return served.modern()
    peer = await served.legacy()
    await peer.request("logging/setLevel", {"level": "debug"})
    return peer


def params_of(tool: str, **arguments: Json) -> JsonObject:
    level = "io.modelcontextprotocol/logLevel"
    return {"name": tool, "arguments": arguments, "_meta": {"progressToken": 1, level: "debug"}}


def said(peer: ModernPeer | LegacyPeer) -> list[Json]:
    """Return the progress values and the data of log messages."""
    heard = [message["params"] for message in peer.sent]
    return [params["data"] if "data" in params else params["progress"] for params in heard]


@ERAS
@pytest.mark.parametrize("waits", [False, True])
async def test_messages_are_sent_in_order_before_the_response(served: LocalGateway, era: str, waits: bool) -> None:  # noqa: FBT001
    peer = await listening(served, era)
    large = "x" * 600_000
    before = [1, ["said"], 2, large, ["said", "more"], 3, large]
    asked_after: list[int] = []

    def ada(_method: str, _params: JsonObject) -> Json:
        asked_after.append(len(peer.sent))
        return {"action": "accept", "content": {"name": "Ada"}}

    peer.respond = ada
    answer = await peer.request("tools/call", params_of("says", waits=waits))
    assert answer["result"]["content"][0]["text"] == "over"
    assert asked_after == [len(before)]
    again = before if era == "modern" else []  # the function runs again with the response
    assert said(peer) == [*before, *again, ["said", "more", "more", "last"], 4]


async def test_messages_of_a_thread_are_sent_in_order(served: LocalGateway) -> None:
    peer = await listening(served, "modern")
    await peer.request("tools/call", params_of("says_in_a_thread"))
    assert said(peer) == [1, ["said"], 2]


async def test_invalid_message_raises_in_the_function(served: LocalGateway) -> None:
    peer = await listening(served, "modern")
    answer = await peer.request("tools/call", params_of("errs"))
    errors = answer["result"]["structuredContent"]
    assert [error.partition(":")[0] for error in errors] == [*["ToolError"] * 4, "TypeError", "ToolError"]
    assert (
        errors[1]
        == "ToolError: The data of the log message cannot be encoded as JSON: Type is not JSON serializable: object"
    )
    assert peer.sent == []


class SlowPeer(ModernPeer):
    """A client that reads later."""

    def __init__(self, *given: Any, **others: Any) -> None:
        super().__init__(*given, **others)
        self.may_read = asyncio.Event()

    async def send(self, message: JsonObject) -> bool:
        await self.may_read.wait()
        return await super().send(message)


async def test_messages_to_a_slow_client_are_bounded_and_counted(served: LocalGateway) -> None:
    peer = SlowPeer(served.dispatcher)
    calling = asyncio.create_task(peer.request("tools/call", params_of("floods", waits=False)))
    dropped = served.dispatcher.notifier.counters.dropped
    await until(lambda: dropped["notifications/progress"] >= 3000 - MAX_MESSAGES)
    peer.may_read.set()
    assert (await calling)["result"]["content"][0]["text"] == "over"
    assert said(peer) == list(range(MAX_MESSAGES))


async def test_message_that_cannot_be_sent_does_not_stop_later_messages() -> None:
    queue, sent = SendQueue(), asyncio.Event()

    async def fail() -> None:
        raise ExecutionError("all threads were busy")

    async def send() -> None:
        sent.set()

    failed, _ = queue.put(fail), queue.put(send)
    await queue.drain()
    assert isinstance(failed.exception(), ExecutionError)
    assert sent.is_set()


async def test_function_that_awaits_a_slow_client_can_be_cancelled(served: LocalGateway) -> None:
    peer = SlowPeer(served.dispatcher)
    result = asyncio.create_task(peer.request("tools/call", params_of("floods", waits=True)))
    while not (waiting := [task for task in asyncio.all_tasks() if task.get_name() == "messages of a call"]):
        await asyncio.sleep(0.01)
    result.cancel()
    async with asyncio.timeout(SECONDS):
        await asyncio.wait([result, *waiting])
    assert result.cancelled()
    assert said(peer) == []
