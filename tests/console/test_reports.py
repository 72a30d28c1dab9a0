"""Reports about upstreams, limits and tasks."""

import asyncio
import sys
from pathlib import Path
from typing import Any, Final

from gateway.json_types import JsonObject
from tests.console.watching import Seen, Watched, watched
from tests.messages import BOTH, MODERN, initialize_request, modern_request

ODD: Final = Path(__file__).parents[1] / "upstreams" / "testdata" / "odd_server.py"
UPSTREAMS: Final = f"""
upstreams:
  odd: {{command: {[sys.executable, str(ODD), "plain"]}}}
  gone: {{command: [/nowhere/at/all], start: eager}}
"""
LIMITS: Final = """
limits:
  sessions: {per_caller: 1, in_all: 4}
  concurrency: 4
tools:
  often: {description: Often., content: [{text: again}], rate_limit: 3/hour}
"""
TOOL: Final = "tools: {often: {description: Often., content: again}}\n"
PER_CALLER: Final = "limits.concurrency, per_caller"
BUSY: Final = """
limits: {concurrency: {per_caller: 4, in_all: 8}}
tools:
  waits:
    description: Waits.
    input: {path: string}
    concurrency: 1
    queue: 1
    shell: {command: [sh, -c, "until [ -e \\"$1\\" ]; do sleep 0.01; done", sh, "{{ path }}"]}
"""
TASKS: Final = """
plugins: [plugins]
tools:
  long: {python: "house:long", task: required}
"""
PLUGIN: Final = '''
import asyncio
from pathlib import Path
from gateway.plugin import Context

async def long(context: Context, path: str) -> str:
    """Takes long."""
    while not Path(path).exists():
        await asyncio.sleep(0.01)
    await context.progress(1, 3, "one of three")
    schema = {"type": "object", "properties": {"sure": {"type": "boolean"}}}
    answer = await context.elicit("sure", "Are you sure?", schema)
    return str(answer)
'''


async def upstream(daemon: Watched, name: str) -> Any:
    return next(each for each in (await daemon.get("/upstreams"))["upstreams"] if each["name"] == name)


async def until_up(daemon: Watched, name: str) -> Any:
    while (found := await upstream(daemon, name))["state"] != "up":
        await asyncio.sleep(0.05)
    return found


async def used(daemon: Watched, limit: str) -> Any:
    return next(each["used"] for each in (await daemon.get("/limits"))["callers"] if each["name"] == limit)


async def test_failed_upstream_shows_the_reason_and_is_reconnected_on_request(tmp_path: Path) -> None:
    async with watched(tmp_path, UPSTREAMS) as daemon, daemon.events() as events:
        before = await until_up(daemon, "odd")
        assert before["server"] == {"name": "plain", "version": "1"}
        assert before["offers"]["tools"] == 3
        assert before["errors"] == []

        await daemon.call("odd_die")
        while "out of cheese" not in (found := await upstream(daemon, "odd"))["stderr"]:
            await asyncio.sleep(0.05)
        assert "exited with code 3" in found["errors"][-1]["message"]
        await daemon.ask("POST", "/upstreams/odd/reconnect", status=202)
        again = await until_up(daemon, "odd")
        assert again["since"] >= before["since"]
        assert again["restarts"] == 1

        while (gone := await upstream(daemon, "gone"))["state"] == "connecting":
            await asyncio.sleep(0.05)
        assert (gone["state"], gone["stderr"]) == ("backing_off", [])
        assert "/nowhere/at/all" in gone["reason"]
        assert gone["nextTryAt"] is None or gone["nextTryAt"] > gone["since"]
        failures = gone["errors"]
        await daemon.ask("POST", "/upstreams/gone/reconnect", status=202)
        while (await upstream(daemon, "gone"))["errors"] == failures:
            await asyncio.sleep(0.05)
        await daemon.ask("POST", "/upstreams/none/reconnect", status=404)
        status = await events.first("status")
        assert status["upstreams"].keys() == {"odd", "gone"}


async def test_limits_list_callers_and_refusals(tmp_path: Path) -> None:
    async with watched(tmp_path, LIMITS) as daemon:
        for _ in range(4):
            await daemon.call("often")
        for status in (200, 503):
            async with daemon.http.post(daemon.url, json=initialize_request(), headers={"Accept": BOTH}) as response:
                assert response.status == status
        limits = await daemon.get("/limits")
        quotas = {each["name"]: each for each in limits["quotas"]}
        assert (quotas["limits.sessions"]["used"], quotas["limits.sessions"]["limit"]) == (1, 4)
        near = {each["name"]: each for each in limits["callers"]}
        rate, sessions = near["tools.often.rate_limit"], near["limits.sessions.per_caller"]
        assert (rate["used"], rate["limit"], rate["per"]) == (3, 3, "h")
        assert (sessions["used"], sessions["limit"]) == (1, 1)
        assert rate["caller"] == sessions["caller"] == "anonymous@127.0.0.1"
        assert "limits.connections.per_caller" not in near  # loopback has no limit per address
        assert [(each["what"], each["limit"]) for each in limits["refusals"]] == [
            ("tools/call often", "tools.often.rate_limit"),
            ("sessions", "limits.sessions"),
        ]
        assert limits["refused"]["rate"] == 1
        refused = await daemon.only_call(outcome="tool_error")
        assert refused["limit"] == "tools.often.rate_limit"


async def test_connections_are_counted_by_address(tmp_path: Path) -> None:
    async with watched(tmp_path, "limits: {connections: {per_caller: 3, in_all: 9}}\n" + TOOL) as daemon:
        await daemon.call("often")
        near = {each["name"]: each for each in (await daemon.get("/limits"))["callers"]}
        connections = near["limits.connections.per_caller"]
        assert (connections["caller"], connections["limit"]) == ("127.0.0.1", 3)


async def test_call_shows_its_waiting_times(tmp_path: Path) -> None:
    async with watched(tmp_path, BUSY) as daemon, daemon.events() as events:
        calls = [asyncio.create_task(daemon.call("waits", path=str(tmp_path / "go"))) for _ in range(2)]

        def is_waiting(event: Seen) -> bool:
            return event.kind == "status" and event.data["callsWaiting"] == 1

        await events.until(is_waiting)
        assert (await used(daemon, "concurrency of tools/call/waits"), await used(daemon, PER_CALLER)) == (2, 2)
        (tmp_path / "go").touch()
        await asyncio.gather(*calls)
        listed = (await daemon.get("/calls"))["calls"]
        waits = [(await daemon.get(f"/calls/{each['seq']}"))["waits"] for each in listed]
        # Either call can be the first to run.
        [wait] = [each for found in waits for each in found]
        assert wait["for"] == "concurrency"
        assert wait["ms"] > 1


async def test_task_shows_its_progress_and_questions(tmp_path: Path) -> None:
    (tmp_path / "plugins").mkdir()
    (tmp_path / "plugins" / "house.py").write_text(PLUGIN)
    async with watched(tmp_path, TASKS) as daemon, daemon.events() as events:
        capabilities: JsonObject = {"elicitation": {"form": {}}, "extensions": {"io.modelcontextprotocol/tasks": {}}}
        meta = {"io.modelcontextprotocol/clientCapabilities": capabilities}
        message = modern_request(
            "tools/call", {"name": "long", "arguments": {"path": str(tmp_path / "go")}, "_meta": meta}
        )
        headers = {"MCP-Protocol-Version": MODERN, "Mcp-Method": "tools/call", "Mcp-Name": "long"}
        async with daemon.http.post(daemon.url, json=message, headers=headers) as response:
            task_id = (await response.json())["result"]["taskId"]
        (tmp_path / "go").touch()
        await events.until(lambda event: event.kind == "task" and event.data.get("message") == "one of three")
        waiting = await events.until(lambda event: event.kind == "task" and event.data["status"] == "input_required")
        assert waiting.data["taskId"] == task_id
        assert await used(daemon, "limits.tasks.per_caller") == 1
        task = await daemon.get(f"/tasks/{task_id}")
        [question] = task["questions"]
        assert (question["method"], question["message"]) == ("elicitation/create", "Are you sure?")
        await daemon.ask("POST", f"/tasks/{task_id}/cancel")
        await events.until(lambda event: event.kind == "task" and event.data["status"] == "cancelled")


async def test_open_subscription_is_listed_as_a_stream(tmp_path: Path) -> None:
    async with watched(tmp_path, f'{TOOL}resources: {{note: {{uri: "note://a", text: A.}}}}\n') as daemon:
        message = modern_request("subscriptions/listen", {"notifications": {"resourceSubscriptions": ["note://a"]}})
        headers = {"MCP-Protocol-Version": MODERN, "Mcp-Method": "subscriptions/listen"}
        async with daemon.http.post(daemon.url, json=message, headers=headers) as response:
            await response.content.readany()
            [stream] = (await daemon.get("/sessions"))["streams"]
        assert (stream["kind"], stream["subscriptions"], stream["revision"]) == ("listen", ["note://a"], MODERN)
