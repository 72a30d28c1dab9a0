"""Three replicas behind a real nginx without stickiness: one after the other dies, Redis once, and no call is lost."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Final

import aiohttp
import orjson
import pytest

from gateway.json_types import Json
from tests.e2e.daemon import MODERN, call, serving
from tests.interop.nginx import nginx
from tests.ports import free_port
from tests.redis_server import redis_server

pytestmark = pytest.mark.build

SECONDS: Final = 240
KEY: Final = "a key that all three replicas have"
CONFIG: Final = """\
plugins: [questions]
tools:
  here: {description: Say it., content: here}
  ask: {description: Ask for a name., python: {call: "names:ask"}}
"""
PLUGIN: Final = '''\
from gateway.plugin import Context

FORM = {"type": "object", "properties": {"name": {"type": "string"}}}


async def ask(context: Context) -> str:
    """Ask for a name."""
    answer = await context.elicit("name", "Your name?", FORM)
    return f"{answer.action} {answer.content}"
'''
CLIENT: Final = {"name": "test", "version": "1"}
BOTH: Final = {"Accept": "application/json, text/event-stream"}
HEADERS: Final = {"MCP-Protocol-Version": MODERN, "Mcp-Method": "tools/call", "Mcp-Name": "here", **BOTH}


class Clients:
    """A session and a modern client, whose calls are tried twice at the most, and what became of them."""

    def __init__(self, url: str, http: aiohttp.ClientSession) -> None:
        self.url: Final = url
        self.counts: Final[Counter[str]] = Counter()
        self.lost: Final[list[str]] = []
        self._http: Final = http
        self._session: dict[str, str] = {}
        self._number = 0

    async def open(self) -> None:
        params = {"protocolVersion": "2025-11-25", "capabilities": {"elicitation": {}}, "clientInfo": CLIENT}
        message = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}
        async with self._http.post(self.url, json=message, headers=BOTH) as response:
            self._session = {**BOTH, "Mcp-Session-Id": response.headers["Mcp-Session-Id"]}
        await self._say({"jsonrpc": "2.0", "method": "notifications/initialized"})

    async def all(self) -> None:
        await self._try("modern call", self._modern_call)
        await self._try("call of a session", lambda: self._legacy_call("here"))
        await self._try("question", lambda: self._legacy_call("ask"))

    async def _try(self, name: str, attempt: Callable[[], Awaitable[bool]]) -> None:
        self.counts["made"] += 1
        for again in (False, True):
            with suppress(aiohttp.ClientError, TimeoutError):
                async with asyncio.timeout(20):
                    if await attempt():
                        self.counts["answered"] += 1
                        self.counts["repeated"] += again
                        return
            await asyncio.sleep(0)
        self.lost.append(name)

    async def _modern_call(self) -> bool:
        async with self._http.post(self.url, json=call("here"), headers=HEADERS) as response:
            return response.status == 200 and "result" in await response.json()

    async def _legacy_call(self, tool: str) -> bool:
        self._number += 1
        params = {"name": tool, "arguments": {}}
        message = {"jsonrpc": "2.0", "id": self._number, "method": "tools/call", "params": params}
        async with self._http.post(self.url, json=message, headers=self._session) as response:
            if response.content_type == "application/json":
                return response.status == 200 and "result" in await response.json()
            async for line in response.content:
                if not line.startswith(b"data: {"):
                    continue
                said = orjson.loads(line[6:])
                if said.get("method") == "elicitation/create":
                    answer: Json = {"action": "accept", "content": {"name": "Ada"}}
                    await self._say({"jsonrpc": "2.0", "id": said["id"], "result": answer})
                elif said.get("id") == self._number:
                    return "result" in said and "Ada" in line.decode()
            return False

    async def _say(self, message: Json) -> None:
        for _ in range(2):
            with suppress(aiohttp.ClientError):
                async with self._http.post(self.url, json=message, headers=self._session) as response:
                    if response.status == 202:
                        return
        raise aiohttp.ClientError("not taken")


@asynccontextmanager
async def replica(config: Path, address: str, environment: Mapping[str, str]) -> AsyncIterator[None]:
    """One that serves; at the end of the context it is killed."""
    async with serving(config, "--http", address, environment=environment) as daemon:
        await daemon.url()
        yield


async def test_no_call_is_lost_while_each_replica_dies_and_redis_is_restarted(tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(CONFIG)
    (tmp_path / "questions").mkdir()
    (tmp_path / "questions" / "names.py").write_text(PLUGIN)
    addresses = [f"127.0.0.1:{free_port()}" for _ in range(3)]
    async with asyncio.timeout(SECONDS), AsyncExitStack() as stack:
        redis = await stack.enter_async_context(redis_server(tmp_path / "redis", "--appendonly", "yes"))
        environment = {
            "MCP_GATEWAY_STORE": redis.url,
            "MCP_GATEWAY_SECRET_KEY": KEY,
            "MCP_GATEWAY_STATE_DIR": "none",
        }
        alive = {each: await stack.enter_async_context(AsyncExitStack()) for each in addresses}
        await asyncio.gather(
            *(alive[each].enter_async_context(replica(config, each, environment)) for each in addresses)
        )
        second = f"{addresses[1]} max_fails=0;\n    server {addresses[2]}"
        (tmp_path / "nginx").mkdir()
        proxy = await stack.enter_async_context(nginx(tmp_path / "nginx", daemon=addresses[0], second=second))
        http = await stack.enter_async_context(aiohttp.ClientSession())
        clients = [Clients(f"{proxy.url}/mcp", http) for _ in range(4)]
        for client in clients:
            await client.open()
            await client.all()
        is_over = asyncio.Event()

        async def go_on(client: Clients) -> None:
            while not is_over.is_set():
                await client.all()

        working = [asyncio.create_task(go_on(client)) for client in clients]
        try:
            for address in addresses:
                await alive[address].aclose()  # kill -9
                await alive[address].enter_async_context(replica(config, address, environment))
            await redis.stop()
            await redis.start()
            for client in clients:
                made = client.counts["made"]
                while client.counts["made"] < made + 6:
                    await asyncio.sleep(0.05)
        finally:
            is_over.set()
            await asyncio.gather(*working)
    counts = sum((client.counts for client in clients), Counter())
    assert [lost for client in clients for lost in client.lost] == [], counts
    assert counts["answered"] == counts["made"] > 50
    print(dict(counts))  # noqa: T201 - what it came to, with -s
