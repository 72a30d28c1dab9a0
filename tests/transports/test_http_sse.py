"""Tests for HTTP+SSE."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from types import MappingProxyType

import aiohttp
import orjson
import pytest

from gateway.json_types import Json
from tests.messages import initialize_request, legacy_request
from tests.transports.http_server import Answer, RunningServer, call, http_server
from tests.waiting import until

INITIALIZED = {"jsonrpc": "2.0", "method": "notifications/initialized"}
PATIENCE = 15


@pytest.fixture
async def served() -> AsyncIterator[RunningServer]:
    async with http_server() as it:
        yield it


@dataclass
class Client:
    """An open stream. The prefix is removed from the endpoint, as a reverse proxy does."""

    served: RunningServer
    stream: aiohttp.ClientResponse
    endpoint: str = ""

    async def event(self) -> tuple[str, str]:
        """Return the type and data of the next event. Comments are skipped."""
        fields: dict[str, str] = {}
        async with asyncio.timeout(PATIENCE):
            async for line in self.stream.content:
                text = line.decode().rstrip("\n")
                if text.startswith(":"):
                    continue
                if not text and fields:
                    return fields["event"], fields["data"]
                if text:
                    name, _, value = text.partition(": ")
                    fields[name] = value
        raise EOFError

    async def message(self) -> Json:
        kind, data = await self.event()
        assert kind == "message"
        return orjson.loads(data)

    async def post(self, message: Json | bytes, path: str | None = None) -> Answer:
        return await self.served.send(message, path=path or self.endpoint.removeprefix("/ops"))

    async def initialize(self, revision: str = "2024-11-05") -> Json:
        assert (await self.post(initialize_request(revision))).status == 202
        answer = await self.message()
        await self.post(INITIALIZED)
        return answer["result"]


@asynccontextmanager
async def connected(served: RunningServer, fields: Mapping[str, str] = MappingProxyType({})) -> AsyncIterator[Client]:
    headers = {"Accept": "text/event-stream", **fields}
    async with served.client.get(f"http://{served.address}/sse", headers=headers) as stream:
        assert (stream.status, stream.content_type) == (200, "text/event-stream")
        assert stream.headers["X-Accel-Buffering"] == "no"
        client = Client(served, stream)
        kind, client.endpoint = await client.event()
        assert kind == "endpoint"
        yield client


async def test_endpoint_event_has_the_public_prefix_and_a_random_session_id(
    served: RunningServer,
) -> None:
    async with connected(served) as one, connected(served) as other:
        assert one.endpoint.startswith("/ops/messages?session_id=")
        assert one.endpoint != other.endpoint
        assert len(one.endpoint.partition("=")[2]) >= 32


@pytest.mark.parametrize(("trusted", "prefix"), [(["127.0.0.1"], "/team"), ([], "")])
async def test_endpoint_event_has_the_prefix_from_a_trusted_proxy(trusted: list[str], prefix: str) -> None:
    async with (
        http_server(public_url=None, trusted_proxies=trusted) as served,
        connected(served, {"X-Forwarded-Prefix": "/team"}) as client,
    ):
        assert client.endpoint.startswith(f"{prefix}/messages?session_id=")


async def test_message_for_an_ended_session_is_rejected(served: RunningServer) -> None:
    body = orjson.dumps(initialize_request("2024-11-05"))
    async with connected(served) as client:
        path = client.endpoint.removeprefix("/ops")
        reader, writer = await asyncio.open_connection(served.address.host, served.address.port)
        head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: close\r\n"
        writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body[:20])
        await writer.drain()
        await client.post(legacy_request("ping"))  # the other message is being read
        client.stream.close()
        await until(lambda: not len(served.streams))
        writer.write(body[20:])
        answer = await asyncio.wait_for(reader.read(), PATIENCE)
        writer.close()
    assert answer.startswith(b"HTTP/1.1 404 ")
    assert not [task for task in asyncio.all_tasks() if task.get_name() == "outbox"]


async def test_too_large_message_is_an_error_in_the_response_to_its_post(served: RunningServer) -> None:
    async with connected(served) as client:
        assert (await client.post(b" " * 1_000_001)).status == 413
        await client.initialize()  # the session still works


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("POST", "/messages", 404),
        ("POST", "/messages?session_id=unknown", 404),
        ("GET", "/messages", 405),
        ("POST", "/sse", 405),
    ],
)
async def test_other_methods_and_unknown_sessions_are_rejected(
    served: RunningServer, method: str, path: str, status: int
) -> None:
    assert (await served.send(legacy_request("ping"), method=method, path=path)).status == status


async def test_ended_session_closes_its_stream(served: RunningServer) -> None:
    async with connected(served) as client:
        await client.initialize()
        ((_, session),) = served.server.open_sessions()
        assert await served.server.end_session(session)
        with pytest.raises(EOFError):
            await client.event()
        assert not await served.server.end_session(session)


async def test_draining_finishes_calls_and_closes_streams(served: RunningServer) -> None:
    async with connected(served) as client:
        await client.initialize()
        await client.post(call("wait"))
        await asyncio.wait_for(served.control.started.wait(), PATIENCE)
        draining = asyncio.create_task(served.sse.drain(10))
        await asyncio.sleep(0)
        assert (await client.post(call("echo", request_id=2, text="late"))).status == 202
        assert (await client.message())["result"]["content"][0]["text"] == "late"
        refused = await served.send(None, {"Accept": "text/event-stream"}, method="GET", path="/sse")
        assert (refused.status, refused.headers["Connection"]) == (503, "close")
        served.control.release.set()
        assert (await client.message())["result"]["content"][0]["text"] == "released"
        await asyncio.wait_for(draining, PATIENCE)
        with pytest.raises(EOFError):
            await client.event()


async def test_call_that_outlasts_the_drain_returns_an_error(served: RunningServer) -> None:
    async with connected(served) as client:
        await client.initialize()
        await client.post(call("wait", request_id="long"))
        await asyncio.wait_for(served.control.started.wait(), PATIENCE)
        await asyncio.wait_for(served.sse.drain(0.01), PATIENCE)
        answer = await client.message()
        assert (answer["id"], answer["error"]["code"]) == ("long", -32603)
        with pytest.raises(EOFError):
            await client.event()


async def test_streams_are_counted_against_the_limit() -> None:
    async with http_server(stream_limit=1) as served, connected(served):
        refused = await served.send(None, {"Accept": "text/event-stream"}, method="GET", path="/sse")
        assert (refused.status, "Retry-After" in refused.headers) == (503, True)


async def test_open_stream_gets_keep_alive_comments() -> None:
    async with http_server(keepalive=0.05) as served, connected(served) as client:
        async with asyncio.timeout(PATIENCE):
            assert (await client.stream.content.readuntil(b":\n\n")).endswith(b":\n\n")


async def test_batch_entries_count_as_requests_in_flight(served: RunningServer) -> None:
    async with connected(served) as client:
        await client.initialize("2025-03-26")
        statuses = [
            (await client.post([call("wait", request_id=start + number) for number in range(90)])).status
            for start in range(0, 270, 90)
        ]
        assert statuses == [202, 202, 503]
        served.control.release.set()
        answered = [*await client.message(), *await client.message()]
        assert {each["id"] for each in answered} == set(range(180))


async def test_batch_that_outlasts_the_drain_returns_an_error_per_entry(served: RunningServer) -> None:
    async with connected(served) as client:
        await client.initialize("2025-03-26")
        await client.post([call("wait", request_id="long"), call("echo", request_id="short", text="done")])
        await asyncio.wait_for(served.control.started.wait(), PATIENCE)
        await asyncio.wait_for(served.sse.drain(0.01), PATIENCE)
        answers = {each["id"]: each for each in await client.message()}
        assert answers["short"]["result"]["content"][0]["text"] == "done"
        assert answers["long"]["error"]["code"] == -32603
