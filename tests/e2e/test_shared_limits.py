"""Two daemons share their limits through Redis."""

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final

import aiohttp
import pytest

from gateway.json_types import Json
from tests.e2e.daemon import Daemon, call, serving
from tests.messages import BOTH, initialize_request, modern_headers, modern_request
from tests.redis_server import RedisServer, redis_server

pytestmark = pytest.mark.build

SECONDS: Final = 90
FILE: Final = """\
listen: {{http: "127.0.0.1:0"}}
limits: {limits}
tools:
  echo: {{description: Return a text., content: "said"{rate}}}
  wait:
    description: Wait for a file to go.
    shell: {{command: [sh, -c, "while [ -e {folder}/wait ]; do sleep .05; done"]}}
"""


class Replicas:
    """Two daemons and their store."""

    def __init__(self, folder: Path, redis: RedisServer, http: aiohttp.ClientSession) -> None:
        self.folder: Final = folder
        self.redis: Final = redis
        self.http: Final = http
        self.daemons: Final[list[Daemon]] = []
        self.urls: Final[list[str]] = []

    async def call(self, number: int, tool: str = "echo") -> Json:
        """Return the result of a call at one replica."""
        headers = modern_headers("tools/call", {"name": tool}, Accept="application/json")
        async with self.http.post(self.urls[number], json=call(tool), headers=headers) as response:
            return (await response.json())["result"]

    async def passes(self, number: int) -> bool:
        return not (await self.call(number)).get("isError", False)

    async def status(self, number: int) -> Json:
        async with self.http.get(self.urls[number].removesuffix("/mcp") + "/-/status") as response:
            return await response.json()

    async def until(self, number: int, *, is_unavailable: bool) -> None:
        while bool((await self.status(number))["store"]["shared"]["problem"]) is not is_unavailable:
            await asyncio.sleep(0.05)


@asynccontextmanager
async def replicas(folder: Path, *, limits: str = "{}", rate: str = "") -> AsyncIterator[Replicas]:
    async with asyncio.timeout(SECONDS), AsyncExitStack() as stack:
        redis = await stack.enter_async_context(redis_server(folder / "redis"))
        http = await stack.enter_async_context(aiohttp.ClientSession())
        found = Replicas(folder, redis, http)
        environment = {
            "MCP_GATEWAY_STORE": redis.url,
            "MCP_GATEWAY_SECRET_KEY": "a key of sixteen bytes",
            "MCP_GATEWAY_STATE_DIR": "none",
        }
        write(folder, limits=limits, rate=rate)
        for _ in range(2):
            daemon = await stack.enter_async_context(serving(folder / "config.yaml", environment=environment))
            found.daemons.append(daemon)
            found.urls.append(await daemon.url())
        yield found


def write(folder: Path, *, limits: str = "{}", rate: str = "") -> None:
    (folder / "config.yaml").write_text(FILE.format(limits=limits, rate=rate, folder=folder))


async def test_rate_limit_is_shared_and_local_while_redis_is_unavailable(tmp_path: Path) -> None:
    async with replicas(tmp_path, rate=", rate_limit: 6/hour") as both:
        assert sum([await both.passes(number % 2) for number in range(10)]) == 6
        refused = await both.call(1)
        assert "at most 6/hour for one caller (tools.echo.rate_limit)" in refused["content"][0]["text"]
        write(tmp_path, rate=", rate_limit: 8/hour")
        for each in both.daemons:
            each.signal(signal.SIGHUP)
        for number in range(2):
            while (await both.status(number))["generation"] < 2:
                await asyncio.sleep(0.05)
        assert sum([await both.passes(number % 2) for number in range(6)]) == 2
        await both.redis.stop()
        counts = [sum([await both.passes(number) for _ in range(10)]) for number in range(2)]
        assert sum(counts) == 2 * 8 - 8  # each replica counts its own calls, including the earlier ones
        await both.redis.start()
        for number in range(2):
            await both.until(number, is_unavailable=False)
        assert sum([await both.passes(number % 2) for number in range(20)]) == 8  # the restarted store is empty


async def test_permits_of_a_killed_daemon_are_released(tmp_path: Path) -> None:
    (tmp_path / "wait").touch()
    async with replicas(tmp_path, limits="{concurrency: {in_all: 2}, queue: {in_all: 1}}") as both:
        held = [asyncio.create_task(both.call(0, "wait")) for _ in range(2)]
        while (
            int((await both.redis.client.hgetall("mcp-gateway:{limits}:all calls:") or {"": b"0"}).popitem()[1][:1]) < 2
        ):
            await asyncio.sleep(0.05)
        assert (await both.status(0))["limits"]["concurrency"] == {
            "used": 2,
            "limit": 2,
            "per_caller": None,
            "shared": True,
        }
        waiting = asyncio.create_task(both.call(1))
        while (await both.status(1))["calls_waiting"] < 1:
            await asyncio.sleep(0.05)
        busy = await both.call(1)
        assert "waiting (limits.concurrency, in_all)" in busy["content"][0]["text"]
        both.daemons[0].signal(signal.SIGKILL)
        assert (await waiting)["content"][0]["text"] == "said"
        (tmp_path / "wait").unlink()
        await asyncio.gather(*held, return_exceptions=True)


async def test_session_and_stream_limits_are_shared(tmp_path: Path) -> None:
    """Both limits are tested concurrently, because each test waits until the lease of a killed daemon expires."""
    limits = {"for-all": "2", "for-each": "{per_caller: 2}"}
    async with asyncio.TaskGroup() as tasks:
        for name, limit in limits.items():
            (tmp_path / name).mkdir()
            tasks.create_task(_sessions_and_streams(tmp_path / name, limit))


async def _sessions_and_streams(folder: Path, limit: str) -> None:
    async with replicas(folder, limits=f"{{sessions: {limit}, streams: {limit}}}") as both:

        async def initialize(number: int) -> aiohttp.ClientResponse:
            return await both.http.post(both.urls[number], json=initialize_request(), headers={"Accept": BOTH})

        async def listen(number: int) -> aiohttp.ClientResponse:
            headers = modern_headers("subscriptions/listen", {}, Accept=BOTH)
            message = modern_request("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
            return await both.http.post(both.urls[number], json=message, headers=headers)

        opened = [await initialize(number) for number in (0, 1, 0, 1)]
        assert [each.status for each in opened] == [200, 200, 503, 503]
        assert opened[2].headers["Retry-After"]
        session = {"Accept": BOTH, "Mcp-Session-Id": opened[0].headers["Mcp-Session-Id"]}
        for url in both.urls:  # both replicas serve the session
            async with both.http.post(url, json={"jsonrpc": "2.0", "id": 1, "method": "ping"}, headers=session) as ping:
                assert ping.status == 200
        async with both.http.delete(both.urls[1], headers=session) as ended:
            assert ended.status == 204
        while (await initialize(1)).status == 503:  # the first replica reports the end of the session
            await asyncio.sleep(0.05)
        streams = [await listen(number) for number in (0, 1, 0, 1)]
        assert [each.status for each in streams] == [200, 200, 503, 503]
        streams[0].close()
        while (again := await listen(1)).status == 503:
            await asyncio.sleep(0.05)
        assert again.status == 200
        both.daemons[1].signal(signal.SIGKILL)  # two streams of this replica
        while (again := await listen(0)).status == 503:
            await asyncio.sleep(0.2)
        assert again.status == 200


async def test_only_limited_calls_use_the_store_once(tmp_path: Path) -> None:
    async with replicas(tmp_path, rate=", rate_limit: 1000/hour") as both:

        async def scripts() -> int:
            found = await both.redis.client.info("commandstats")
            return sum(found.get(f"cmdstat_{name}", {"calls": 0})["calls"] for name in ("evalsha", "eval"))

        assert await both.passes(0)
        before = await scripts()
        for _ in range(20):
            await both.passes(0)
        assert 20 <= await scripts() - before <= 24  # the other ones keep the replica alive
        before = await scripts()
        for _ in range(20):
            await both.call(0, "wait")
        assert await scripts() - before <= 4
