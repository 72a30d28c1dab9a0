"""Redis is slow, full or rejects the login. Clients of both eras continue, and no acknowledged data is lost."""

import asyncio
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, closing, suppress
from pathlib import Path
from typing import Final

import aiohttp
import pytest

from gateway.json_types import Json
from tests.e2e.daemon import serving
from tests.e2e.test_tasks_over_restarts import TESTDATA, Served
from tests.messages import BOTH, legacy_request, open_session
from tests.redis_server import RedisServer, redis_server

pytestmark = pytest.mark.build

SECONDS: Final = 120
PASSWORD: Final = "right"


class Client(Served):
    """A client of one of two replicas."""

    async def legacy(self, session: str | None, method: str, **params: Json) -> aiohttp.ClientResponse:
        fields = {"Accept": BOTH} if session is None else {"Accept": BOTH, "Mcp-Session-Id": session}
        response = await self.client.post(self.url, json=legacy_request(method, params), headers=fields)
        await response.read()
        return response

    async def initialize(self) -> str:
        return (await open_session(self.client, self.url))["Mcp-Session-Id"]

    async def delete(self, session: str) -> int:
        async with self.client.delete(self.url, headers={"Mcp-Session-Id": session}) as response:
            return response.status

    async def warnings(self) -> list[str]:
        async with self.client.get(self.url.replace("/mcp", "/-/ready")) as response:
            assert response.status == 200
            return [str(each) for each in (await response.json()).get("warnings", ())]

    async def until_unavailable(self, reason: str) -> None:
        while not any(
            "store: redis has been unavailable since" in each and reason in each for each in await self.warnings()
        ):
            await asyncio.sleep(0.05)

    async def until_back(self) -> None:
        while await self.warnings():
            await asyncio.sleep(0.05)


@asynccontextmanager
async def clients(folder: Path, url: str) -> AsyncIterator[list[Client]]:
    config = shutil.copytree(TESTDATA, folder / "tasks") / "config.yaml"
    environment = {
        "MCP_GATEWAY_STORE": url,
        "MCP_GATEWAY_SECRET_KEY": "a key of sixteen bytes",
        "MCP_GATEWAY_STATE_DIR": "none",
    }
    async with AsyncExitStack() as stack:
        http = await stack.enter_async_context(aiohttp.ClientSession())
        found = []
        for _ in range(2):
            daemon = await stack.enter_async_context(serving(config, "--http", "127.0.0.1:0", environment=environment))
            found.append(Client(daemon=daemon, url=await daemon.url(), client=http))
        yield found


async def fill(store: RedisServer) -> Callable[[], Awaitable[object]]:
    await store.client.config_set("maxmemory", "1")
    return lambda: store.client.config_set("maxmemory", "0")


async def forbid(store: RedisServer) -> Callable[[], Awaitable[object]]:
    await store.client.execute_command("ACL", "SETUSER", "default", "-set", "-evalsha", "-eval", "-xadd")  # type: ignore[no-untyped-call]
    return lambda: store.client.execute_command("ACL", "SETUSER", "default", "+@all")  # type: ignore[no-untyped-call]


async def change_password(store: RedisServer) -> Callable[[], Awaitable[object]]:
    await store.client.config_set("requirepass", "other")
    await store.client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")  # type: ignore[no-untyped-call]
    return lambda: store.client.config_set("requirepass", PASSWORD)


@pytest.mark.parametrize(
    ("begin", "reason"),
    [(fill, "used memory"), (forbid, "permissions"), (change_password, "invalid username-password")],
)
async def test_store_errors_fail_no_call_and_lose_no_acknowledged_data(
    tmp_path: Path, begin: Callable[[RedisServer], Awaitable[Callable[[], Awaitable[object]]]], reason: str
) -> None:
    async with (
        asyncio.timeout(SECONDS),
        redis_server(tmp_path / "redis", password=PASSWORD) as store,
        clients(tmp_path, store.url) as (a, b),
    ):
        before = await a.initialize()
        task = await a.start("fixed")
        done = await a.until(task, "completed")
        end = await begin(store)
        for each in (a, b):
            await each.until_unavailable(reason)
        during = await b.initialize()
        for each in (a, b):
            assert "result" in await each.ask("tools/list", taskId="")
            for session in (before, during):
                assert (await each.legacy(session, "tools/list")).status == 200
        assert (await a.legacy(before, "logging/setLevel", level="error")).status == 200
        assert await b.delete(during) == 204
        refused = await a.ask("tools/call", name="fixed", arguments={})
        if "result" in refused:
            assert refused["result"].get("resultType") != "task"
        else:
            assert "redis has been unavailable" in str(refused)
        await end()
        for each in (a, b):
            await each.until_back()
        again = await b.until(task, "completed")
        assert again["result"] == done["result"]
        while (await a.legacy(during, "ping")).status != 404:  # the deletion was acknowledged
            await asyncio.sleep(0.05)
        assert (await b.legacy(before, "ping")).status == 200
        assert (await b.until(await a.start("fixed"), "completed"))["result"] == done["result"]
        assert PASSWORD not in "".join([*a.daemon.errors, *b.daemon.errors])


async def test_replicas_with_a_wrong_password_join_after_its_correction(tmp_path: Path) -> None:
    async with asyncio.timeout(SECONDS), redis_server(tmp_path / "redis", password="other") as store:
        url = store.url.replace("other", PASSWORD)
        async with clients(tmp_path, url) as (a, b):
            session = await a.initialize()
            for each in (a, b):
                await each.until_unavailable("invalid username-password")
                assert (await each.legacy(session, "tools/list")).status == 200
            await store.client.config_set("requirepass", PASSWORD)
            for each in (a, b):
                await each.until_back()
            task = await a.start("fixed")
            assert (await b.until(task, "completed"))["status"] == "completed"


@asynccontextmanager
async def delayed(port: int, seconds: float) -> AsyncIterator[int]:
    """Run a proxy that delays data in both directions, and yield its port."""

    async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(65536):
                await asyncio.sleep(seconds)
                writer.write(data)
                await writer.drain()
        writer.close()

    connections: set[asyncio.Task[None]] = set()

    async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with closing(writer):
            up_reader, up_writer = await asyncio.open_connection("127.0.0.1", port)
            with closing(up_writer):
                await asyncio.gather(pass_on(reader, up_writer), pass_on(up_reader, writer))

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.add(asyncio.create_task(connect(reader, writer)))

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]
        for each in connections:
            each.cancel()
        await asyncio.gather(*connections, return_exceptions=True)


async def test_slow_store_is_not_unavailable(tmp_path: Path) -> None:
    async with (
        asyncio.timeout(SECONDS),
        redis_server(tmp_path / "redis") as store,
        delayed(store.port, 0.1) as port,  # 200 ms per round trip
        clients(tmp_path, f"redis://127.0.0.1:{port}") as (a, b),
    ):
        session = await a.initialize()
        assert (await b.legacy(session, "logging/setLevel", level="error")).status == 200
        assert (await a.legacy(session, "tools/list")).status == 200
        assert (await b.until(await a.start("fixed"), "completed"))["status"] == "completed"
        assert await b.delete(session) == 204
        assert (await a.legacy(session, "ping")).status == 404
