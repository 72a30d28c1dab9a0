"""The console shows the activity of all workers."""

import asyncio
from pathlib import Path
from typing import Any, Final

import aiohttp

from tests.console.watching import Events
from tests.e2e.daemon import post_call, serving, text_of
from tests.redis_server import redis_server

SECONDS: Final = 60
FILE: Final = """
listen: {console: true}
limits: {concurrency: {in_all: 8}}
tools:
  whoami: {description: Says who., shell: {command: [sh, -c, "echo $PPID"]}}
"""


async def test_calls_of_all_workers_are_listed_opened_counted_and_streamed(tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(FILE)
    async with redis_server(tmp_path / "redis") as store, asyncio.timeout(SECONDS):
        environment = {"MCP_GATEWAY_STORE": store.url, "MCP_GATEWAY_SECRET_KEY": "a key of sixteen bytes"}
        flags = ("--http", "127.0.0.1:0", "--workers", "2", "--state-dir", str(tmp_path / "state"))
        async with serving(config, *flags, environment=environment, is_forked=False) as daemon:
            link = (await daemon.event("console"))["url"]
            await daemon.event("workers ready")
            base, _, token = link.partition("/-/console/?token=")
            url, headers = await daemon.url(), {"Authorization": f"Bearer {token}"}

            async def get(path: str) -> Any:
                async with aiohttp.ClientSession() as fresh, fresh.get(f"{base}/-/api{path}", headers=headers) as found:
                    assert found.status == 200, await found.text()
                    return await found.json()

            async with (
                aiohttp.ClientSession() as http,
                http.get(f"{base}/-/api/events", headers=headers) as response,
            ):
                events = Events(response)
                await events.first("hello")
                workers: dict[str, int] = {}
                while len(workers) < 2:
                    async with aiohttp.ClientSession() as fresh:  # a separate connection, which any worker can accept
                        answer = await post_call(fresh, url, "whoami")
                    workers[text_of(answer)] = workers.get(text_of(answer), 0) + 1
                count = sum(workers.values())
                for _ in range(4):
                    calls = (await get("/calls"))["calls"]
                    assert len(calls) == count
                    assert [call["seq"] for call in calls] == sorted(call["seq"] for call in calls)
                    opened = [await get(f"/calls/{call['seq']}") for call in calls]
                    assert {each["response"]["result"]["content"][0]["text"] for each in opened} == {*workers}
                    assert sum((await get("/overview"))["rates"]["calls"]) == count
                # Both workers search for the complete text, and not only for the part before `#`.
                assert (await get("/calls?q=whoami%23"))["calls"] == []
                # The workers share the limit through their store.
                quotas = {each["name"]: each["limit"] for each in (await get("/limits"))["quotas"]}
                assert quotas["limits.concurrency"] == 8
                told = {call["seq"] for call in calls}
                seen: set[int] = set()
                while seen != told:
                    seen = {
                        event.data["seq"]
                        for event in events.seen
                        if event.kind == "call" and event.data["outcome"] == "ok"
                    }
                    assert seen == told or await events.read()
                await events.until(lambda event: event.kind == "status" and event.data["rate"]["calls"] == count)
