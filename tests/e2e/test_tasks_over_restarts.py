"""Tasks survive killed and stopped daemons."""

import asyncio
import shutil
import signal
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Final

import aiohttp
import pytest

from gateway.json_types import Json, JsonObject
from tests.e2e.daemon import TIMEOUT_SECONDS, Daemon, serving
from tests.messages import modern_request
from tests.waiting import until

TESTDATA: Final = Path(__file__).parents[1] / "behaviour" / "testdata" / "tasks"
TASKS: Final = "io.modelcontextprotocol/tasks"
STOPPED: Final = "the server stopped before the task finished"
CAPABILITIES: Final[JsonObject] = {"elicitation": {}, "extensions": {TASKS: {}}}
_META: Final[JsonObject] = {"io.modelcontextprotocol/clientCapabilities": CAPABILITIES}
_NAMES: Final = {"tools/call": "name", "server/discover": "", "resources/read": "uri"}
_IDS: Final = count(1)


@dataclass(kw_only=True)
class Served:
    """A daemon with a state directory, and a client."""

    daemon: Daemon
    url: str
    client: aiohttp.ClientSession

    async def ask(self, method: str, **params: Json) -> dict[str, Json]:
        headers = {
            "MCP-Protocol-Version": "2026-07-28",
            "Mcp-Method": method,
            "Mcp-Name": str(params[_NAMES.get(method, "taskId")]),
        }
        body = modern_request(method, {**params, "_meta": _META}, request_id=next(_IDS))
        async with self.client.post(self.url, json=body, headers=headers) as response:
            message: dict[str, Json] = await response.json()
            return message

    async def start(self, tool: str, /, **arguments: Json) -> str:
        result = (await self.ask("tools/call", name=tool, arguments=arguments))["result"]
        assert result["resultType"] == "task"
        return str(result["taskId"])

    async def until(self, task_id: str, *statuses: str) -> dict[str, Json]:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while True:
                task: dict[str, Json] = (await self.ask("tasks/get", taskId=task_id))["result"]
                if task["status"] in statuses:
                    return task
                await asyncio.sleep(0.01)

    async def update(self, task_id: str, **texts: str) -> None:
        responses = {key: {"action": "accept", "content": {"text": text}} for key, text in texts.items()}
        assert "result" in await self.ask("tasks/update", taskId=task_id, inputResponses=responses)

    async def kill(self) -> None:
        self.daemon.signal(signal.SIGKILL)
        await self.daemon.exit_code()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return shutil.copytree(TESTDATA, tmp_path / "tasks")


@asynccontextmanager
async def served(folder: Path, *flags: str) -> AsyncIterator[Served]:
    state = str(folder.parent / "state")
    config = folder / "config.yaml"
    async with (
        serving(config, "--http", "127.0.0.1:0", "--state-dir", state, *flags) as daemon,
        aiohttp.ClientSession() as client,
    ):
        yield Served(daemon=daemon, url=await daemon.url(), client=client)


def _steady(task: JsonObject) -> JsonObject:
    """Return a task without members that depend on its age."""
    return {name: value for name, value in task.items() if name != "pollIntervalMs"}


def _text(task: JsonObject) -> str:
    return str(task["result"]["content"][0]["text"])


Row = Callable[[Served, Path], AsyncGenerator[None, Served]]
"""The steps for one task. At each `yield`, the daemon is killed, and its successor is returned."""


async def finished_tasks_are_readable(served: Served, folder: Path) -> AsyncGenerator[None, Served]:
    completed = await served.start("fixed")
    failed = await served.start("breaks")
    cancelled = await served.start("waits", file=str(folder / "never"))
    found = [await served.until(completed, "completed"), await served.until(failed, "failed")]
    await served.ask("tasks/cancel", taskId=cancelled)
    found.append(await served.until(cancelled, "cancelled"))
    while True:
        served = yield
        for task in found:
            assert _steady((await served.ask("tasks/get", taskId=task["taskId"]))["result"]) == _steady(task)


async def an_overflowing_result_is_readable(served: Served, folder: Path) -> AsyncGenerator[None, Served]:
    task_id = await served.start("overflowing")
    uri = (await served.until(task_id, "completed"))["result"]["content"][1]["uri"]
    before = (await served.ask("resources/read", uri=uri))["result"]["contents"]
    assert before[0]["text"].endswith("2000\n")
    while True:
        served = yield
        assert (await served.ask("resources/read", uri=uri))["result"]["contents"] == before


async def a_running_task_has_failed(served: Served, folder: Path) -> AsyncGenerator[None, Served]:
    began = folder / "began"
    task_id = await served.start("once_only", began=str(began), go=str(folder / "go"))
    await until((began).exists)
    while True:
        served = yield
        task = await served.until(task_id, "failed")
        assert (task["error"], task["statusMessage"]) == ({"code": -32603, "message": STOPPED}, STOPPED)
        assert began.read_text().split() == ["begun"]


async def a_running_task_is_restarted(served: Served, folder: Path) -> AsyncGenerator[None, Served]:
    began, go = folder / "began", folder / "go"
    task_id = await served.start("again", began=str(began), go=str(go))
    await until((began).exists)
    served = yield
    go.touch()
    assert _text(await served.until(task_id, "completed")) == "begun 2 times"
    served = yield
    assert _text(await served.until(task_id, "completed")) == "begun 2 times"
    yield


async def a_running_task_is_restarted_at_most_as_configured(
    served: Served, folder: Path
) -> AsyncGenerator[None, Served]:
    began = folder / "began"
    task_id = await served.start("again", began=str(began), go=str(folder / "never"))
    await until((began).exists)
    served = yield
    await until(lambda: len(began.read_text().split()) >= 2)
    assert (await served.until(task_id, "working", "failed"))["status"] == "working"
    served = yield
    assert (await served.until(task_id, "failed"))["statusMessage"] == STOPPED
    yield


async def a_waiting_task_can_be_answered(served: Served, folder: Path) -> AsyncGenerator[None, Served]:
    both, each = await served.start("asks_both"), await served.start("asks")
    await served.until(both, "input_required")
    await served.update(both, one="1")
    await served.until(each, "input_required")
    served = yield
    assert (await served.until(both, "input_required"))["inputRequests"].keys() == {"other"}
    await served.update(both, other="2")
    assert _text(await served.until(both, "completed")) == "{'text': '1'} {'text': '2'}"
    await served.update(each, first="a")
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while "second" not in (await served.until(each, "input_required", "working")).get("inputRequests", {}):
            await asyncio.sleep(0.01)
    served = yield
    await served.update(each, second="b")
    assert _text(await served.until(each, "completed")) == "{'text': 'a'} 1 {'text': 'b'}"
    yield


async def an_expired_task_is_unknown(served: Served, folder: Path) -> AsyncGenerator[None, Served]:
    task_id = await served.start("short", file=str(folder / "never"))
    while True:
        served = yield
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while "error" not in (message := await served.ask("tasks/get", taskId=task_id)):
                await asyncio.sleep(0.01)
        assert message["error"]["code"] == -32602


ROWS: Final[tuple[Row, ...]] = (
    finished_tasks_are_readable,
    an_overflowing_result_is_readable,
    a_running_task_has_failed,
    a_running_task_is_restarted,
    a_running_task_is_restarted_at_most_as_configured,
    a_waiting_task_can_be_answered,
    an_expired_task_is_unknown,
)


async def test_tasks_survive_two_crashes_as_documented(folder: Path, tmp_path: Path) -> None:
    rows: list[AsyncGenerator[None, Served]] = []
    for row in ROWS:
        (tmp_path / row.__name__).mkdir()
    for crash in range(3):
        async with served(folder) as now:
            if not crash:
                rows = [row(now, tmp_path / row.__name__) for row in ROWS]
            for each in rows:
                await (each.asend(now) if crash else anext(each))
            await now.kill()
    for each in rows:
        await each.aclose()


async def test_stopping_daemon_finishes_or_hands_over_tasks(folder: Path, tmp_path: Path) -> None:
    files = {name: str(tmp_path / name) for name in ("began", "other", "go")}
    async with served(folder, "--drain-timeout", "1s") as before:
        handed_over = await before.start("again", began=files["began"], go=files["go"])
        failed = await before.start("once_only", began=files["other"], go=files["go"])
        in_time = await before.start("waits", file=str(tmp_path / "quick"))
        await until((tmp_path / "began").exists)
        await until((tmp_path / "other").exists)
        before.daemon.signal(signal.SIGTERM)
        await before.daemon.event("stopping")
        (tmp_path / "quick").write_text("in time")
        assert await before.daemon.exit_code() == 0
    async with served(folder) as after:
        assert (await after.until(failed, "failed"))["statusMessage"] == STOPPED
        assert _text(await after.until(in_time, "completed")) == "in time"
        Path(files["go"]).touch()
        assert _text(await after.until(handed_over, "completed")) == "begun 2 times"
