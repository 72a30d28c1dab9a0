"""Tool calls as tasks (`io.modelcontextprotocol/tasks`)."""

import asyncio
import re
from pathlib import Path

import pytest
from aiohttp import web
from msgspec.structs import replace

from gateway.access.identity import Identity
from gateway.json_types import Json
from tests.local_server import listening
from tests.protocol.peers import LocalGateway, ModernPeer, call
from tests.protocol.task_requests import (
    SECONDS,
    TASKS,
    WITH_TASKS,
    answer,
    error_of,
    get,
    hear,
    is_alive,
    serving_tasks,
    start,
    text_of,
    until,
    update,
)
from tests.requirements import requirement


@requirement("tasks/create")
async def test_created_task_can_be_read_at_once(peer: ModernPeer, tmp_path: Path) -> None:
    task = await start(peer, "waits", file=str(tmp_path / "go"))
    assert task.keys() == {
        *("resultType", "taskId", "status", "statusMessage", "createdAt", "lastUpdatedAt", "ttlMs", "pollIntervalMs"),
        "_meta",
    }
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", task["createdAt"])
    assert (task["status"], task["ttlMs"], task["pollIntervalMs"]) == ("working", 3_600_000, 1000)
    found = await get(peer, task)
    assert (found["resultType"], found["taskId"], found["status"]) == ("complete", task["taskId"], "working")
    (tmp_path / "go").write_text("done")
    done = await until(peer, task, "completed")
    assert done["result"] == {"resultType": "complete", "content": [{"type": "text", "text": "done"}]}


@requirement("tasks/statuses")
async def test_tool_error_completes_and_protocol_error_fails_the_task(peer: ModernPeer) -> None:
    done = await until(peer, await start(peer, "fails"), "completed")
    assert done["result"]["isError"] is True
    failed = await until(peer, await start(peer, "breaks"), "failed")
    assert failed["error"] == {"code": 1234, "message": "broken", "data": {"why": "so"}}
    assert failed["statusMessage"] == "broken"
    assert "result" not in failed


@requirement("tasks/negotiation")
async def test_client_without_extension_cannot_call_required_tasks(served: LocalGateway) -> None:
    plain = served.modern()
    assert (await call(plain, "fixed"))["content"][0]["text"] == "fixed"
    error = await error_of(plain, "tools/call", {"name": "fails"})
    assert error["code"] == -32021
    assert error["data"] == {"requiredCapabilities": {"extensions": {TASKS: {}}}}
    for method in ("tasks/get", "tasks/update", "tasks/cancel"):
        error = await error_of(plain, method, {"taskId": "unknown"})
        assert (error["code"], error["data"]["requiredCapabilities"]) == (-32021, {"extensions": {TASKS: {}}})


@requirement("tasks/legacy")
async def test_legacy_client_has_no_tasks(served: LocalGateway) -> None:
    legacy = await served.legacy()
    message = await legacy.request("tools/call", {"name": "fixed", "task": {"ttl": 1}})
    assert message["result"] == {"content": [{"type": "text", "text": "fixed"}]}
    refused = (await legacy.request("tools/call", {"name": "fails"}))["result"]
    assert refused["isError"] is True
    assert refused["content"][0]["text"] == f"This needs a client with the extension {TASKS}"
    assert (await legacy.request("tasks/get", {"taskId": "x"}))["error"]["code"] == -32601
    assert "extensions" not in str(await legacy.request("tools/list", {}))


@requirement("tasks/discover")
async def test_discover_declares_the_extension_only(peer: ModernPeer) -> None:
    capabilities = (await peer.once("server/discover", {}))["result"]["capabilities"]
    assert capabilities["extensions"][TASKS] == {}
    assert "tasks" not in capabilities


@pytest.mark.parametrize("method", ["tasks/get", "tasks/update", "tasks/cancel"])
@requirement("tasks/unknown")
async def test_unknown_task_is_an_error(peer: ModernPeer, method: str) -> None:
    error = await error_of(peer, method, {"taskId": "unknown", "inputResponses": {}})
    assert error["code"] == -32602


@requirement("tasks/binding")
async def test_task_of_another_caller_is_unknown(served: LocalGateway, tmp_path: Path) -> None:
    ada, bob = (
        served.modern(capabilities=WITH_TASKS, identity=Identity(principal=name, realm="keys"))
        for name in ("ada", "bob")
    )
    task = await start(ada, "waits", file=str(tmp_path / "go"))
    unknown = await error_of(bob, "tasks/get", {"taskId": "unknown"})
    for method in ("tasks/get", "tasks/update", "tasks/cancel"):
        error = await error_of(bob, method, {"taskId": task["taskId"], "inputResponses": {}})
        assert error == unknown
    assert (await get(ada, task))["status"] == "working"


@requirement("tasks/cancel")
async def test_cancel_ends_the_process_tree_and_can_be_repeated(peer: ModernPeer, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    task = await start(peer, "tree", pids=str(pids))
    async with asyncio.timeout(SECONDS):
        while not pids.exists() or not (found := pids.read_text().split()):
            await asyncio.sleep(0.005)
    for _ in range(2):
        acked = (await peer.once("tasks/cancel", {"taskId": task["taskId"]}))["result"]
        assert acked.keys() == {"resultType", "_meta"}
        assert acked["resultType"] == "complete"
        assert (await get(peer, task))["status"] == "cancelled"
    async with asyncio.timeout(SECONDS):
        while any(is_alive(int(pid)) for pid in found):
            await asyncio.sleep(0.01)
    finished = await until(peer, await start(peer, "fixed"), "completed")
    assert (await peer.once("tasks/cancel", {"taskId": finished["taskId"]}))["result"]["resultType"] == "complete"
    assert (await get(peer, finished))["status"] == "completed"


@requirement("tasks/input")
async def test_request_inside_a_task_ends_its_run_until_the_response(served: LocalGateway, peer: ModernPeer) -> None:
    task = await start(peer, "asks")
    waiting = await until(peer, task, "input_required")
    assert waiting["inputRequests"].keys() == {"first"}
    assert waiting["inputRequests"]["first"]["method"] == "elicitation/create"
    assert served.dispatcher.tasks.running == 0
    await served.quiet()
    acked = await update(peer, task, first=answer("a"), never_asked=answer("x"))
    assert acked.keys() == {"resultType", "_meta"}
    async with asyncio.timeout(SECONDS):
        while "second" not in (waiting := await get(peer, task)).get("inputRequests", {}):
            await asyncio.sleep(0.002)
    await update(peer, task, first=answer("too late"))
    await update(peer, task, second=answer("b"))
    assert text_of(await until(peer, task, "completed")) == "{'text': 'a'} 1 {'text': 'b'}"
    await update(peer, task, second=answer("after the end"))


@requirement("tasks/statuses")
async def test_task_fails_if_a_reload_removes_its_tool(served: LocalGateway, peer: ModernPeer) -> None:
    task = await start(peer, "asks")
    await until(peer, task, "input_required")
    await served.edit("  asks:", "  asks_later:")
    await update(peer, task, first=answer("a"))
    assert (await until(peer, task, "failed"))["error"]["message"] == "The tool no longer exists"


@requirement("tasks/partial")
async def test_open_requests_can_be_answered_separately(peer: ModernPeer) -> None:
    task = await start(peer, "asks_both")
    assert (await until(peer, task, "input_required"))["inputRequests"].keys() == {"one", "other"}
    await update(peer, task, never_asked=answer("0"))
    await update(peer, task, one=answer("1"))
    found = await get(peer, task)
    assert (found["status"], found["inputRequests"].keys()) == ("input_required", {"other"})
    await update(peer, task, other=answer("2"))
    assert text_of(await until(peer, task, "completed")) == "{'text': '1'} {'text': '2'}"


@requirement("tasks/partial")
async def test_resumed_task_uses_header_fields_of_the_last_response(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MCP_GATEWAY_STATE_DIR", str(tmp_path / "state"))  # a store that responds from a thread

    async def team(request: web.Request) -> web.Response:
        return web.Response(text=request.headers.get("X-Team", "nobody"))

    application = web.Application()
    application.router.add_get("/", team)
    async with listening(application) as port, serving_tasks(tmp_path) as served:
        (served.folder / "team.py").write_text(
            "from .workers import Context, asks_both\n\nasync def team(context: Context) -> str:\n"
            "    await asks_both(context)\n    return (await context.read_resource('x:team'))[0]['text']\n"
        )
        backend = f'url: "http://127.0.0.1:{port}/", allow_private: true, forward_headers: [X-Team]'
        await served.edit(
            "tools:\n",
            f'resources: {{team: {{uri: "x:team", http: {{{backend}}}}}}}\n'
            'tools:\n  team: {description: Tells the team., python: "team:team", task: required}\n',
        )
        first, second = (served.modern(capabilities=WITH_TASKS, headers={"x-team": team}) for team in ("a", "b"))
        task = await start(first, "team")
        await until(first, task, "input_required")
        await asyncio.gather(update(first, task, one=answer("1")), update(second, task, other=answer("2")))
        assert text_of(await until(first, task, "completed")) in {"a", "b"}


@requirement("tasks/before")
async def test_ask_before_precedes_the_task(peer: ModernPeer) -> None:
    given: dict[str, Json] = {"name": "asks_before"}
    for key in ("first", "second"):
        result = (await peer.once("tools/call", given))["result"]
        assert result["resultType"] == "input_required"
        assert "taskId" not in result
        assert result["inputRequests"].keys() == {key}
        given = {"name": "asks_before", "inputResponses": {key: answer(key)}}
        given |= {"requestState": result["requestState"]} if "requestState" in result else {}
    task = (await peer.once("tools/call", given))["result"]
    assert task["resultType"] == "task"
    assert not {"requestState", "inputRequests"} & task.keys()
    done = await until(peer, task, "completed")
    assert text_of(done).startswith("{'text': 'first'}")
    assert "requestState" not in done


@requirement("tasks/before")
async def test_function_chooses_the_recipient_of_each_request(peer: ModernPeer) -> None:
    result = (await peer.once("tools/call", {"name": "asks_where"}))["result"]
    assert (result["resultType"], result["inputRequests"].keys()) == ("input_required", {"before"})
    given = {"name": "asks_where", "inputResponses": {"before": answer("b")}}
    task = (await peer.once("tools/call", given))["result"]
    assert task["resultType"] == "task"
    assert (await until(peer, task, "input_required"))["inputRequests"].keys() == {"inside"}
    await update(peer, task, inside=answer("i"))
    assert text_of(await until(peer, task, "completed")) == "b i"


@requirement("tasks/after")
async def test_call_within_after_returns_its_result(peer: ModernPeer, tmp_path: Path) -> None:
    (tmp_path / "there").write_text("quick")
    message = await peer.once("tools/call", {"name": "after", "arguments": {"file": str(tmp_path / "there")}})
    assert (message["result"]["resultType"], message["result"]["content"][0]["text"]) == ("complete", "quick")
    task = await start(peer, "after", file=str(tmp_path / "later"))
    assert task["statusMessage"] == "waiting"
    (tmp_path / "later").write_text("slow")
    assert text_of(await until(peer, task, "completed")) == "slow"


@requirement("tasks/ttl")
async def test_expired_task_is_stopped_and_removed(served: LocalGateway, peer: ModernPeer, tmp_path: Path) -> None:
    task = await start(peer, "short", file=str(tmp_path / "never"))
    assert task["ttlMs"] == 300
    async with asyncio.timeout(SECONDS):
        while "error" not in (message := await peer.once("tasks/get", {"taskId": task["taskId"]})):
            await asyncio.sleep(0.01)
        assert message["error"]["code"] == -32602
        while served.dispatcher.tasks.running:
            await asyncio.sleep(0.01)


@requirement("tasks/notifications")
async def test_listen_stream_notifies_of_its_tasks(peer: ModernPeer, tmp_path: Path) -> None:
    named, other = [await start(peer, "waits", file=str(tmp_path / name)) for name in ("named", "other")]
    wanted = {"notifications": {"taskIds": [named["taskId"], "unknown"]}}
    listening = asyncio.create_task(peer.once("subscriptions/listen", wanted))
    heard = await hear(peer, lambda sent: len(sent) == 2)
    assert heard[0]["method"] == "notifications/subscriptions/acknowledged"
    assert heard[0]["params"]["notifications"] == {"taskIds": [named["taskId"]]}
    for name in ("named", "other"):
        (tmp_path / name).write_text(name)
    await until(peer, other, "completed")
    heard = await hear(peer, lambda sent: sent[-1]["params"].get("status") == "completed")
    assert {each["params"]["taskId"] for each in heard[1:]} == {named["taskId"]}
    assert {each["method"] for each in heard[1:]} == {"notifications/tasks"}
    polled = await get(peer, named)
    assert {**heard[-1]["params"], "_meta": None, "resultType": None} == {**polled, "_meta": None, "resultType": None}
    listening.cancel()


@requirement("tasks/notifications")
async def test_listen_stream_ends_if_its_view_is_removed_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MCP_GATEWAY_STATE_DIR", str(tmp_path / "state"))  # a store that responds from a thread
    async with serving_tasks(tmp_path) as served:
        await served.edit("tools:\n", "views: {some: {include: {tools: [waits]}}}\ntools:\n")
        peer = served.modern(capabilities=WITH_TASKS, view="some")
        listening = asyncio.create_task(
            peer.once("subscriptions/listen", {"notifications": {"toolsListChanged": True, "taskIds": ["unknown"]}})
        )
        await asyncio.sleep(0)
        assert not served.dispatcher.notifier._subscriptions, "it is to wait for the store"
        store = served.dispatcher.store
        store.swap(replace(store.current, views={}))
        async with asyncio.timeout(SECONDS):
            answer = await listening
        assert answer["result"]["resultType"] == "complete"
        assert [each["method"] for each in peer.sent] == [
            "notifications/subscriptions/acknowledged",
            "notifications/cancelled",
        ]


@requirement("tasks/limits")
async def test_task_beyond_the_limit_is_rejected(served: LocalGateway, peer: ModernPeer, tmp_path: Path) -> None:
    await served.edit("server: {name: tasks}", "server: {name: tasks}\nlimits: {tasks: {per_caller: 2, total: 3}}")
    first = await start(peer, "waits", file=str(tmp_path / "never"))
    await start(peer, "waits", file=str(tmp_path / "never"))
    error = await error_of(peer, "tools/call", {"name": "waits", "arguments": {"file": "x"}})
    assert error["code"] == 429
    assert "limits.tasks.per_caller" in error["message"]
    other = served.modern(capabilities=WITH_TASKS, principal="other")
    await start(other, "waits", file=str(tmp_path / "never"))
    error = await error_of(other, "tools/call", {"name": "waits", "arguments": {"file": "x"}})
    assert "limits.tasks.total" in error["message"]
    await peer.once("tasks/cancel", {"taskId": first["taskId"]})
    await start(peer, "waits", file=str(tmp_path / "never"))


@requirement("tasks/binding")
async def test_task_is_unknown_in_another_view(served: LocalGateway) -> None:
    await served.edit("server: {name: tasks}", "server: {name: tasks}\nviews: {some: {include: {tools: [fixed]}}}")
    task = await start(served.modern(capabilities=WITH_TASKS, view="some"), "fixed")
    assert (await get(served.modern(capabilities=WITH_TASKS, view="some"), task))["taskId"] == task["taskId"]
    error = await error_of(served.modern(capabilities=WITH_TASKS), "tasks/get", {"taskId": task["taskId"]})
    assert error["code"] == -32602
