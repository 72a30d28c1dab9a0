"""Requests for tasks, from a client of 2026-07-28."""

import asyncio
import os
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from gateway.json_types import Json, JsonObject
from tests.protocol.peers import EVERYTHING, LocalGateway, ModernPeer, serve_folder

TESTDATA: Final = Path(__file__).parents[1] / "behaviour" / "testdata" / "tasks"


TASKS: Final = "io.modelcontextprotocol/tasks"


WITH_TASKS: Final[JsonObject] = {**EVERYTHING, "extensions": {TASKS: {}}}


SECONDS: Final = 10


async def start(peer: ModernPeer, tool: str, /, **arguments: Json) -> dict[str, Json]:
    """Call a tool, and return the `CreateTaskResult`."""
    message = await peer.once("tools/call", {"name": tool, "arguments": arguments})
    result: dict[str, Json] = message["result"]
    assert result["resultType"] == "task", result
    return result


async def get(peer: ModernPeer, task: JsonObject) -> dict[str, Json]:
    message = await peer.once("tasks/get", {"taskId": task["taskId"]})
    result: dict[str, Json] = message["result"]
    return result


async def until(peer: ModernPeer, task: JsonObject, *statuses: str) -> dict[str, Json]:
    """Wait until the task has one of these statuses, and return it."""
    async with asyncio.timeout(SECONDS):
        while (found := await get(peer, task))["status"] not in statuses:
            await asyncio.sleep(0.002)
    return found


async def error_of(peer: ModernPeer, method: str, params: JsonObject) -> dict[str, Json]:
    message = await peer.once(method, params)
    error: dict[str, Json] = message["error"]
    return error


def answer(text: str) -> dict[str, Json]:
    return {"action": "accept", "content": {"text": text}}


async def update(peer: ModernPeer, task: JsonObject, **responses: Json) -> dict[str, Json]:
    message = await peer.once("tasks/update", {"taskId": task["taskId"], "inputResponses": responses})
    assert "result" in message, message
    result: dict[str, Json] = message["result"]
    return result


def text_of(task: JsonObject) -> str:
    text: str = task["result"]["content"][0]["text"]
    return text


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def hear(peer: ModernPeer, is_enough: Callable[[list[JsonObject]], bool]) -> list[JsonObject]:
    """Wait for messages before responses, and return them."""
    async with asyncio.timeout(SECONDS):
        while not peer.sent or not is_enough(peer.sent):
            await asyncio.sleep(0.005)
    return list(peer.sent)


@asynccontextmanager
async def serving_tasks(folder: Path) -> AsyncIterator[LocalGateway]:
    """Serve a copy of `testdata/tasks`."""
    async with serve_folder(shutil.copytree(TESTDATA, folder / "tasks")) as made:
        yield made
        await made.dispatcher.tasks.close()
        await made.quiet()
