"""Clients of all replicas get the same lists, although the replicas reload their files at different times."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

import aiohttp
import pytest

from gateway.json_types import Json
from tests.messages import MODERN, modern_request
from tests.redis_server import redis_server
from tests.replicas import KEY, Replica

pytestmark = pytest.mark.build

SECONDS: Final = 60
FIRST: Final = "tools: {one: {description: One., content: []}}"
NEXT: Final = "tools: {one: {description: One., content: []}, two: {description: Two., content: []}}"
SWITCH: Final = '''
from gateway.plugin import Context


async def switch(context: Context, on: bool) -> None:
    """Switch the other tool."""
    (context.enable if on else context.disable)("tools", "one")
'''


class Client:
    """A client of one replica, in the modern era."""

    def __init__(self, replica: Replica, http: aiohttp.ClientSession) -> None:
        self._url: Final = f"http://{replica.address}/mcp"
        self._http: Final = http

    async def ask(self, method: str, **params: Json) -> Json:
        fields = {"MCP-Protocol-Version": MODERN, "Mcp-Method": method, "Mcp-Name": str(params.get("name", ""))}
        async with self._http.post(self._url, json=modern_request(method, params), headers=fields) as response:
            return await response.json()

    async def tools(self) -> list[str]:
        return [tool["name"] for tool in (await self.ask("tools/list"))["result"]["tools"]]

    async def listen(self, stack: AsyncExitStack) -> "asyncio.Queue[str]":
        """Yield the methods of notifications, starting with the acknowledgement."""
        body = modern_request("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
        fields = {"MCP-Protocol-Version": MODERN, "Mcp-Method": "subscriptions/listen"}
        response = await stack.enter_async_context(self._http.post(self._url, json=body, headers=fields))
        told: asyncio.Queue[str] = asyncio.Queue()

        async def read() -> None:
            async for line in response.content:
                if b'"method":"' in line:
                    told.put_nowait(line.split(b'"method":"')[1].split(b'"')[0].decode())

        reading = asyncio.create_task(read())
        stack.push_async_callback(asyncio.wait, [reading])
        stack.callback(reading.cancel)
        assert await told.get() == "notifications/subscriptions/acknowledged"
        return told


async def started(stack: AsyncExitStack, *configs: Path, store: str) -> list[Replica]:
    environment = {"MCP_GATEWAY_STORE": store, "MCP_GATEWAY_SECRET_KEY": KEY}
    made = [
        Replica(config=config, address="127.0.0.1:0", flags=("--poll", "0"), environment=environment, watch=True)
        for config in configs
    ]
    for each in made:
        stack.push_async_callback(each.kill)
        await each.start()
    return made


async def test_clients_are_notified_again_when_a_slow_replica_has_reloaded(tmp_path: Path) -> None:
    """A client with a stream at the fast replica can get the old list of the slow replica, so it is notified twice."""
    fast_file, slow_file = tmp_path / "fast" / "config.yaml", tmp_path / "slow" / "config.yaml"
    for file in (fast_file, slow_file):
        file.parent.mkdir()
        file.write_text(FIRST)
    async with asyncio.timeout(SECONDS), AsyncExitStack() as stack:
        redis = await stack.enter_async_context(redis_server(tmp_path / "redis"))
        http = await stack.enter_async_context(aiohttp.ClientSession())
        fast, slow = [Client(each, http) for each in await started(stack, fast_file, slow_file, store=redis.url)]
        told = await fast.listen(stack)
        fast_file.write_text(NEXT)
        assert await told.get() == "notifications/tools/list_changed"
        assert (await fast.tools(), await slow.tools()) == (["one", "two"], ["one"])
        slow_file.write_text(NEXT)
        assert await told.get() == "notifications/tools/list_changed"
        assert await slow.tools() == ["one", "two"]


async def test_notified_list_is_the_same_at_every_replica(tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    (tmp_path / "plugins").mkdir()
    (tmp_path / "plugins" / "switches.py").write_text(SWITCH)
    switched = FIRST.replace("tools: {", 'plugins: [plugins]\ntools: {switch: {python: "switches:switch"}, ')
    config.write_text(switched)
    async with asyncio.timeout(SECONDS), AsyncExitStack() as stack:
        redis = await stack.enter_async_context(redis_server(tmp_path / "redis"))
        http = await stack.enter_async_context(aiohttp.ClientSession())
        clients = [Client(each, http) for each in await started(stack, config, config, config, store=redis.url)]
        told = [await each.listen(stack) for each in clients]
        for on in (False, True) * 5:
            await clients[0].ask("tools/call", name="switch", arguments={"on": on})
            for client in clients:
                assert ("one" in await client.tools()) is on
            for each in told:
                await each.get()
        for number in range(5):
            config.write_text(switched.replace("One.", f"Number {number}."))
            for each in told:
                await each.get()
                for client in clients:
                    listed = (await client.ask("tools/list"))["result"]["tools"]
                    assert f"Number {number}." in {tool["description"] for tool in listed}
        assert all(each.empty() for each in told)
