"""Tests that replicas with one store serve sessions like a single process."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final

import orjson
import pytest

from gateway.json_types import Json
from gateway.state.keys import SigningKeys
from gateway.state.replica import Replica
from gateway.transports.streamable_http.sessions import SessionPersistence
from tests.messages import initialize_request, legacy_request
from tests.redis_server import RedisServer, redis_server
from tests.transports.http_server import RunningServer, call, http_server
from tests.transports.test_resuming import next_message, rest
from tests.transports.test_streamable_http import event, in_session, settled
from tests.waiting import until

KEYS: Final = SigningKeys([b"a key of sixteen bytes"])
SECONDS: Final = 60


@asynccontextmanager
async def joined(
    url: str, *, session_limit: int = 100, session_ttl: float = 3600
) -> AsyncIterator[tuple[RunningServer, Replica]]:
    """Start another replica."""
    clock = time.time
    async with Replica(url, clock=clock) as replica:
        persistence = SessionPersistence(keys=KEYS, store=replica.sessions, clock=clock, replica=replica)
        async with http_server(persistence=persistence, session_limit=session_limit, session_ttl=session_ttl) as served:
            await replica.open()
            yield served, replica


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[RedisServer]:
    async with redis_server(tmp_path / "redis") as server:
        yield server


@pytest.fixture
async def replicas(store: RedisServer) -> AsyncIterator[list[RunningServer]]:
    async with asyncio.timeout(SECONDS), AsyncExitStack() as stack:
        yield [(await stack.enter_async_context(joined(store.url)))[0] for _ in range(3)]


def live(server: RunningServer) -> Json:
    return next(iter(server.sessions.open_sessions))


async def test_replicas_share_session_changes(replicas: list[RunningServer]) -> None:
    a, b, c = replicas
    answer = await a.send(initialize_request(elicitation={}))
    session = in_session(answer.headers["Mcp-Session-Id"])
    assert (await b.send({"jsonrpc": "2.0", "method": "notifications/initialized"}, session)).status == 202
    assert live(a).is_initialized
    for server in (a, b, c):
        assert (await server.send(call("echo", text="hi"), session)).json["result"]["content"][0]["text"] == "hi"
    assert (await c.send(legacy_request("logging/setLevel", {"level": "error"}), session)).status == 200
    assert [live(each).log_level for each in replicas] == ["error"] * 3
    uris = ["test://one", "test://two"]
    for each, uri in zip((a, b), uris, strict=True):  # concurrent changes are not lost
        live(each).subscriptions |= {uri}
    await asyncio.gather(*(each.send(legacy_request("ping"), session) for each in (a, b)))
    await asyncio.gather(*(_save(each) for each in (a, b)))
    assert [live(each).subscriptions for each in replicas] == [frozenset(uris)] * 3
    assert (await b.send(None, session, method="DELETE")).status == 204
    assert [(await each.send(legacy_request("ping"), session)).status for each in replicas] == [404] * 3


async def _save(server: RunningServer) -> None:
    sessions = server.sessions
    await sessions.save(next(iter(sessions._live.values())))


async def test_responses_and_cancellations_reach_the_right_replica(replicas: list[RunningServer]) -> None:
    a, b, c = replicas
    session = in_session(await a.initialize(elicitation={}))
    a.control.orders.put_nowait("ask")
    asking = await a.client.post(a.url, json=call("obey", request_id=7), headers=session)
    question = await next_message(asking)
    answer = {
        "jsonrpc": "2.0",
        "id": question.message["id"],
        "result": {"action": "accept", "content": {"name": "Ada"}},
    }
    assert (await b.send(answer, session)).status == 202
    assert "Ada" in orjson.dumps((await next_message(asking)).message["result"]).decode()
    asking.close()
    waiting = asyncio.create_task(a.send(call("wait", request_id=8), session))
    await a.control.started.wait()
    cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 8}}
    assert (await c.send(cancel, session)).status == 202
    await a.control.cancelled.wait()
    await waiting


async def test_request_stream_resumes_at_another_replica(replicas: list[RunningServer]) -> None:
    a, b, _ = replicas
    session = in_session(await a.initialize())
    asked = await a.client.post(a.url, json=call("obey", request_id="mine", token=1), headers=session)
    a.control.orders.put_nowait("report")
    first = await next_message(asked)
    a.control.orders.put_nowait("report")
    second = await next_message(asked)
    asked.close()
    resumed = await b.client.get(b.url, headers={**session, "Last-Event-ID": first.id})
    assert (await next_message(resumed)).id == second.id
    for order in ("report", "over"):
        a.control.orders.put_nowait(order)
    last, answer = await rest(resumed)
    assert last.message["params"]["progress"] == 3
    assert (answer.message["id"], answer.message["result"]["content"][0]["text"]) == ("mine", "over")
    again = await b.client.get(b.url, headers={**session, "Last-Event-ID": last.id})
    assert [each.message for each in await rest(again)] == [answer.message]
    for response in (resumed, again):
        response.close()


async def test_get_stream_resumes_at_another_replica(replicas: list[RunningServer]) -> None:
    a, b, _ = replicas
    session = in_session(await a.initialize())
    stream = await a.client.get(a.url, headers=session)
    await settled(a, streams=1)
    a.dispatcher.notifier.list_changed("tools")
    told = await next_message(stream)
    a.dispatcher.notifier.list_changed("prompts")
    missed = await next_message(stream)
    resumed = await b.client.get(b.url, headers={**session, "Last-Event-ID": told.id})
    assert (await event(resumed))["method"] == missed.message["method"]
    b.dispatcher.notifier.list_changed("resources")
    assert (await event(resumed))["method"] == "notifications/resources/list_changed"
    for response in (stream, resumed):
        response.close()


async def test_response_lost_with_its_replica_is_an_error(store: RedisServer) -> None:
    async with asyncio.timeout(SECONDS), AsyncExitStack() as stack:
        b, _ = await stack.enter_async_context(joined(store.url))
        async with joined(store.url) as (a, replica):
            session = in_session(await a.initialize())
            asked = await a.client.post(a.url, json=call("obey", request_id="mine", token=1), headers=session)
            a.control.orders.put_nowait("report")
            primed = await next_message(asked)
            asked.close()
            a.sessions._live.popitem()[1].streams.close()  # killed, so it sends nothing at its end
            await store.client.delete(f"mcp-gateway:mailbox:{replica.name}")
        resumed = await b.client.get(b.url, headers={**session, "Last-Event-ID": primed.id})
        *_, lost = await rest(resumed)
        assert (lost.message["id"], lost.message["error"]["code"]) == ("mine", -32603)
        resumed.close()


async def test_http_sse_messages_reach_the_replica_with_the_stream(replicas: list[RunningServer]) -> None:
    a, b, _ = replicas
    stream = await a.client.get(a.url.replace("/mcp", "/sse"), headers={"Accept": "text/event-stream"})
    endpoint = (await stream.content.readuntil(b"\n\n")).decode().split("data: ")[1].strip()
    path = endpoint[endpoint.index("/messages") :]
    assert (await b.send(initialize_request("2024-11-05"), path=path)).status == 202
    assert (await event(stream))["result"]["protocolVersion"] == "2024-11-05"
    assert (await b.send(call("echo", text="hi"), path=path)).status == 202
    assert (await event(stream))["result"]["content"][0]["text"] == "hi"
    assert (await b.send(call("echo"), path=f"{path}x")).status == 404
    assert (await b.send(call("echo"), path="/messages?session_id=unknown.x")).status == 404
    stream.close()


async def test_calls_continue_while_the_store_is_unavailable(store: RedisServer, replicas: list[RunningServer]) -> None:
    a, b, c = replicas
    old = in_session(await a.initialize())
    await store.stop()
    new = in_session(await b.initialize())
    for server, session in ((a, old), (b, old), (c, new)):
        assert (await server.send(call("echo", text="hi"), session)).status == 200
    assert (await a.modern("tools/list")).status == 200
    assert (await a.send(legacy_request("logging/setLevel", {"level": "error"}), old)).status == 200
    assert (await b.send(None, new, method="DELETE")).status == 204
    assert (await b.send(legacy_request("ping"), new)).status == 404
    cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 8}}
    refused = await c.send(cancel, new)
    assert refused.status == 503
    assert "store: redis has been unavailable since" in refused.text
    await store.start()
    await until(lambda: next(iter(b.sessions.open_sessions)).log_level == "error")
    await until(lambda: len(c.sessions) == 0)  # deleted in the meantime
    assert (await c.send(legacy_request("ping"), new)).status == 404


@pytest.mark.parametrize("reason", ["wrong password", "full", "slow"])
async def test_plain_calls_work_with_a_read_only_store(tmp_path: Path, reason: str) -> None:
    async with asyncio.timeout(SECONDS), redis_server(tmp_path / "redis", password="right") as store:
        if reason == "full":
            await store.client.config_set("maxmemory", "1")
        url = store.url.replace("right", "wrong") if reason == "wrong password" else store.url
        async with joined(url) as (server, replica):
            if reason == "slow":
                await store.client.client_pause(30_000)
            session = in_session(await server.initialize())
            assert (await server.send(call("echo", text="hi"), session)).status == 200
            assert (await server.modern("tools/list")).status == 200
            await until(lambda: replica.store.is_unavailable)
            assert replica.store.problem.startswith("store: redis has been unavailable since 20")
            assert "right" not in str(replica.status())


@pytest.mark.build
async def test_shared_session_needs_a_kibibyte_and_is_deleted(store: RedisServer) -> None:
    count, batch = 200, 50
    async with asyncio.timeout(2 * SECONDS), AsyncExitStack() as stack:
        a, b, c = [
            (await stack.enter_async_context(joined(store.url, session_limit=2 * count, session_ttl=60)))[0]
            for _ in range(3)
        ]

        async def use() -> None:
            session = in_session(await a.initialize())
            for each in (b, c):
                assert (await each.send(call("echo"), session)).status == 200

        for _ in range(count // batch):
            await asyncio.gather(*(use() for _ in range(batch)))
        keys = await _session_keys(store)
        assert len(keys) == count
        assert max([await store.client.memory_usage(key) or 0 for key in keys]) <= 1024
        lives = [await store.client.ttl(key) for key in keys]
        assert 0 < min(lives) <= max(lives) <= 90  # a use can be saved a quarter of the TTL late, twice
        for key in keys:  # advance the time
            await store.client.pexpire(key, 1)
        while await _session_keys(store):
            await asyncio.sleep(0.01)
        left = [key async for key in store.client.scan_iter() if b":session:" in key or b":events:" in key]
        assert left == []


async def _session_keys(store: RedisServer) -> list[bytes]:
    return [key async for key in store.client.scan_iter("mcp-gateway:session:*", count=1000)]


async def test_plain_calls_do_not_use_the_store(store: RedisServer) -> None:
    async with asyncio.timeout(SECONDS), joined(store.url) as (server, replica):
        session = in_session(await server.initialize())
        assert (await server.send(call("echo"), session)).status == 200
        before = replica.store.operations
        for _ in range(20):
            assert (await server.send(call("echo"), session)).status == 200
            assert (await server.modern("tools/list")).status == 200
        assert replica.store.operations - before <= 4  # the mailbox is always kept
