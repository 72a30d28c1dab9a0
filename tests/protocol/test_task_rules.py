"""The settings of tasks in the file and in plugins."""

import asyncio
import os
import threading
from pathlib import Path

import pytest

from gateway.json_types import JsonObject
from gateway.tasks.task import encode_task
from tests.protocol.peers import LocalGateway, ModernPeer, call
from tests.protocol.task_requests import (
    SECONDS,
    TASKS,
    WITH_TASKS,
    answer,
    error_of,
    get,
    serving_tasks,
    start,
    text_of,
    until,
    update,
)


async def test_tool_without_task_runs_an_ordinary_call(peer: ModernPeer) -> None:
    message = await peer.once("tools/call", {"name": "plain", "task": {"ttl": 1000}})
    assert message["result"]["resultType"] == "complete"


async def test_unknown_task_methods_are_not_found(peer: ModernPeer) -> None:
    for method in ("tasks/list", "tasks/result"):
        assert (await error_of(peer, method, {"taskId": "x"}))["code"] == -32601


async def test_cancelled_task_notifies_its_thread(peer: ModernPeer, tmp_path: Path) -> None:
    task = await start(peer, "in_a_thread", file=str(tmp_path / "never"))
    await peer.once("tasks/cancel", {"taskId": task["taskId"]})
    assert (await get(peer, task))["status"] == "cancelled"


async def test_update_with_an_invalid_response_is_rejected_as_a_whole(peer: ModernPeer) -> None:
    task = await start(peer, "asks_both")
    await until(peer, task, "input_required")
    responses = {"one": answer("1"), "other": {"action": "accept", "content": {"text": 5}}}
    error = await error_of(peer, "tasks/update", {"taskId": task["taskId"], "inputResponses": responses})
    assert error["code"] == -32602
    assert (await get(peer, task))["inputRequests"].keys() == {"one", "other"}
    error = await error_of(peer, "tasks/update", {"taskId": task["taskId"]})
    assert error["code"] == -32602


async def test_task_that_waits_for_input_can_be_cancelled(peer: ModernPeer) -> None:
    task = await start(peer, "asks")
    await until(peer, task, "input_required")
    await peer.once("tasks/cancel", {"taskId": task["taskId"]})
    found = await get(peer, task)
    assert found["status"] == "cancelled"
    assert "inputRequests" not in found
    await update(peer, task, first=answer("a"))
    assert (await get(peer, task))["status"] == "cancelled"


async def test_confirmation_is_requested_inside_the_task(peer: ModernPeer) -> None:
    task = await start(peer, "confirmed")
    waiting = await until(peer, task, "input_required")
    (key,) = waiting["inputRequests"]
    await update(peer, task, **{key: {"action": "accept", "content": {}}})
    assert text_of(await until(peer, task, "completed")) == "done"


async def test_request_within_after_creates_a_waiting_task(peer: ModernPeer) -> None:
    task = await start(peer, "after_asks")
    assert (await until(peer, task, "input_required"))["inputRequests"].keys() == {"first"}


@pytest.mark.parametrize(
    "brought",
    [
        {"requestState": "forged"},
        {"inputResponses": []},
        {"inputResponses": {"first": 12345}},
        {"inputResponses": {"first": {"action": "accept", "content": {"text": 5}}}},
    ],
)
async def test_malformed_responses_are_rejected_without_a_task(
    served: LocalGateway, peer: ModernPeer, brought: JsonObject
) -> None:
    error = await error_of(peer, "tools/call", {"name": "asks_before", "arguments": {}, **brought})
    assert error["code"] == -32602
    runner = served.dispatcher.tasks
    assert (await runner.newest(1), runner.limiter.unfinished) == ([], 0)


@pytest.mark.parametrize("tool", ["confirmed", "asks", "asks_before", "asks_where"])
async def test_missing_capability_creates_no_task(served: LocalGateway, tool: str) -> None:
    peer = served.modern(capabilities={"extensions": {TASKS: {}}})
    error = await error_of(peer, "tools/call", {"name": tool, "arguments": {}})
    assert (error["code"], error["data"]) == (-32021, {"requiredCapabilities": {"elicitation": {"form": {}}}})
    runner = served.dispatcher.tasks
    assert (await runner.newest(1), runner.limiter.unfinished) == ([], 0)


async def test_created_task_lacks_the_final_message(peer: ModernPeer) -> None:
    task = await start(peer, "breaks")
    assert task["status"] == "working"
    assert "statusMessage" not in task
    assert (await until(peer, task, "failed"))["statusMessage"] == "broken"


async def test_progress_becomes_the_status_message(peer: ModernPeer, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    task = await start(peer, "told", fifo=str(tmp_path / "fifo"))
    async with asyncio.timeout(SECONDS):
        while (await get(peer, task)).get("statusMessage") != "half":
            await asyncio.sleep(0.005)
    await asyncio.to_thread((tmp_path / "fifo").write_text, "whole")
    assert text_of(await until(peer, task, "completed")) == "whole"
    assert peer.sent == []


async def test_stored_output_lasts_as_long_as_its_task(served: LocalGateway, peer: ModernPeer) -> None:
    done = await until(peer, await start(peer, "overflowing"), "completed")
    assert "120 minutes" in text_of(done)
    uri = done["result"]["content"][1]["uri"]
    store = served.gateway.app.core.services.output_store
    (stored,) = store._outputs.values()
    assert stored.expires - store._clock() > 7000
    read = (await peer.once("resources/read", {"uri": uri}))["result"]
    assert read["contents"][0]["text"].endswith("2000\n")


async def test_listening_for_tasks_needs_the_extension(served: LocalGateway) -> None:
    wanted: dict[str, dict[str, list[str]]] = {"notifications": {"taskIds": []}}
    assert (await error_of(served.modern(), "subscriptions/listen", wanted))["code"] == -32021


async def test_poll_interval_and_ttl_come_from_the_file(served: LocalGateway, peer: ModernPeer) -> None:
    task = await start(peer, "slow_poll")
    assert (task["pollIntervalMs"], task["ttlMs"]) == (2000, 300_000)
    await served.edit("server: {name: tasks}", "server: {name: tasks}\nlimits: {tasks: {ttl: 1m}}")
    assert (await start(peer, "slow_poll"))["ttlMs"] == 60_000


async def test_function_can_read_its_task(served: LocalGateway, peer: ModernPeer) -> None:
    task = await start(peer, "about")
    assert text_of(await until(peer, task, "completed")) == f"{task['taskId']} 300 0"
    assert (await call(served.modern(), "about"))["content"][0]["text"] == "no task"


async def test_call_cancelled_before_its_task_leaves_nothing(
    served: LocalGateway, peer: ModernPeer, tmp_path: Path
) -> None:
    calling = asyncio.create_task(
        peer.once("tools/call", {"name": "after_asks", "arguments": {}, "inputResponses": {"first": answer("a")}})
    )
    await asyncio.sleep(0)
    calling.cancel()
    await asyncio.gather(calling, return_exceptions=True)
    await served.quiet()
    runner = served.dispatcher.tasks
    assert (runner.running, runner.store.counts, runner.limiter.unfinished) == (0, {}, 0)


async def test_changed_tool_sends_requests_under_new_keys(served: LocalGateway, peer: ModernPeer) -> None:
    task = await start(peer, "asks_both")
    await until(peer, task, "input_required")
    await served.edit("Asks two questions at once.", "Asks two things at the same time.")
    await update(peer, task, one=answer("1"), other=answer("2"))
    waiting = await until(peer, task, "input_required", "completed")
    assert waiting["inputRequests"].keys() == {"mcp-gateway.2:one", "mcp-gateway.2:other"}
    await update(peer, task, **{"mcp-gateway.2:one": answer("3"), "mcp-gateway.2:other": answer("4")})
    assert text_of(await until(peer, task, "completed")) == "{'text': '3'} {'text': '4'}"


async def test_call_beyond_the_rate_limit_creates_no_task(
    served: LocalGateway, peer: ModernPeer, tmp_path: Path
) -> None:
    await served.edit("  after: {", "  after: {rate_limit: 1/hour, ")
    (tmp_path / "there").write_text("quick")
    first, second = [await call(peer, "after", file=str(tmp_path / "there")) for _ in range(2)]
    assert (first["content"][0]["text"], first.get("isError")) == ("quick", None)
    assert (second["resultType"], second["isError"]) == ("complete", True)
    assert "too often" in second["content"][0]["text"]


async def test_unwritable_store_refuses_required_tasks_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("MCP_GATEWAY_STATE_DIR", str(tmp_path / "file" / "state"))
    async with serving_tasks(tmp_path) as served:
        peer = served.modern(capabilities=WITH_TASKS)
        assert (await call(peer, "fixed"))["content"][0]["text"] == "fixed"
        message = await peer.once("tools/call", {"name": "asks"})
        assert message["result"]["resultType"] == "input_required"
        error = await error_of(peer, "tools/call", {"name": "fails"})
        assert error["code"] == -32603
        assert error["message"].startswith("Cannot create a task: ")
        assert served.gateway.status()["tasks_problem"]


@pytest.mark.build
async def test_waiting_tasks_hold_no_thread_process_or_permit(served: LocalGateway, peer: ModernPeer) -> None:
    before = threading.active_count()
    tasks = [await start(peer, "asks") for _ in range(1000)]
    async with asyncio.timeout(SECONDS):
        while served.dispatcher.tasks.store.counts["input_required"] < 1000:
            await asyncio.sleep(0.01)
    runner, concurrency = served.dispatcher.tasks, served.dispatcher.concurrency
    assert (runner.running, concurrency.running, concurrency.waiting) == (0, 0, 0)
    assert threading.active_count() <= before
    assert served.gateway.app.core.services.processes.running == 0
    stored = await runner.store.get(tasks[0]["taskId"])
    assert stored is not None
    assert len(encode_task(stored)) < 2048
