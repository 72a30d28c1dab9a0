"""Tests for server-sent events on a real connection."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import orjson
import pytest
from aiohttp import ClientSession, ClientTimeout, web

from gateway.access.identity import UNAUTHENTICATED
from gateway.config.models.address import Address
from gateway.config.models.server import SizeShares
from gateway.protocol.exchange import Binding, Caller, Reply
from gateway.transports.http.forwarded import ClientEndpoint
from gateway.transports.http.request import HttpRequest
from gateway.transports.listener.http_connection import ConnectionLimits
from gateway.transports.listener.http_listener import HttpListener, ListenAddress
from gateway.transports.quota import EXEMPT_BYTES, RequestLimits, WriteQuota
from gateway.transports.sse.response_channel import ResponseChannel, encode_event
from tests.waiting import until

KEY = Caller(binding=Binding.STREAMABLE_HTTP, identity=UNAUTHENTICATED).rate_limit_key
BOTH = {"Accept": "application/json, text/event-stream"}
NOTE = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"data": "line\nbreak"}}
ANSWER = Reply(body=b'{"jsonrpc":"2.0","id":1,"result":{}}')
QUIET = RequestLimits(keepalive=60)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def served(handler: Handler) -> AsyncIterator[str]:
    application = web.Application()
    application.router.add_route("*", "/", handler)
    where = ListenAddress(address=Address("127.0.0.1", 0))
    listener = HttpListener(application, where, connection_limits=ConnectionLimits())
    await listener.start()
    try:
        yield f"http://{listener.address}/"
    finally:
        await listener.close()


def channel(request: web.Request, *, limits: RequestLimits = QUIET) -> ResponseChannel:
    endpoint = ClientEndpoint(address="", scheme="http", host="", prefix="")
    made = HttpRequest(request, client_endpoint=endpoint, response_headers={"X-Mark": "here"})
    return ResponseChannel(made, limits=limits)


def late(request: web.Request, *, limits: RequestLimits = QUIET) -> ResponseChannel:
    response = channel(request, limits=limits)
    response.open_if_late()
    return response


async def fetch(url: str, headers: dict[str, str]) -> tuple[int, str, str]:
    async with (
        ClientSession(timeout=ClientTimeout(total=10)) as client,
        client.get(url, headers=headers) as response,
    ):
        assert response.headers["X-Mark"] == "here"
        return response.status, response.content_type, await response.text()


async def test_stream_only_client_gets_a_stream_but_early_errors_keep_their_status() -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        status = int(request.query.get("status", "200"))
        return await late(request).finish(Reply(body=ANSWER.body, status=status))

    async with served(answer) as url:
        assert (await fetch(url, {"Accept": "text/event-stream"}))[1] == "text/event-stream"
        assert (await fetch(f"{url}?status=400", {"Accept": "text/event-stream"}))[0] == 400


async def test_client_that_accepts_no_event_streams_gets_json() -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        response = late(request)
        await asyncio.sleep(1.2)
        return await response.finish(ANSWER)

    async with served(answer) as url:
        assert (await fetch(url, {"Accept": "*/*"}))[1] == "application/json"


async def test_stream_opens_with_a_comment_and_disables_proxy_buffering() -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        stream = channel(request, limits=QUIET)
        await stream.open()
        return await stream.end()

    async with (
        served(answer) as url,
        ClientSession(timeout=ClientTimeout(total=10)) as client,
        client.get(url) as response,
    ):
        assert response.headers["X-Accel-Buffering"] == "no"
        assert response.headers["Cache-Control"] == "no-cache, no-transform"
        assert await response.text() == ":\n\n"


@pytest.mark.parametrize("size", [1000, 100_000])
async def test_slow_reader_is_dropped(size: int) -> None:
    ended = asyncio.Event()
    sent = 0

    async def flood(request: web.Request) -> web.StreamResponse:
        nonlocal sent
        stream = channel(request, limits=RequestLimits(keepalive=60, write_timeout=0.1))
        try:
            while True:
                await stream.write(encode_event(b"x" * size))
                sent += size
        finally:
            stream.stop()
            ended.set()

    async with served(flood) as url:
        host, port = url.removeprefix("http://").rstrip("/").split(":")
        reader, writer = await asyncio.open_connection(host, int(port), limit=1024)
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        async with asyncio.timeout(10):
            await ended.wait()
        assert sent < 20_000_000
        writer.close()
        assert not reader.at_eof()


async def test_disconnect_cancels_the_handler_and_its_timer() -> None:
    ended = asyncio.Event()
    before = asyncio.all_tasks()

    async def wait(request: web.Request) -> web.StreamResponse:
        stream = channel(request, limits=RequestLimits(keepalive=0.01))
        try:
            await stream.open()
            await asyncio.Event().wait()
        finally:
            stream.stop()
            ended.set()
        return await stream.end()

    async with served(wait) as url:
        async with ClientSession() as client:
            response = await client.get(url)
            await response.content.readuntil(b"\n\n")
            response.close()
        async with asyncio.timeout(20):
            await ended.wait()
    await until(lambda: not {task for task in asyncio.all_tasks() - before if "keep-alive" in task.get_name()})


async def taken(quota: WriteQuota) -> asyncio.Task[bool]:
    """Fill the quota and its queue."""
    assert quota.take(KEY, quota.per_caller)
    waiting = asyncio.create_task(quota.wait(KEY, quota.per_caller, seconds=60))
    await asyncio.sleep(0)
    return waiting


async def test_small_events_and_comments_are_exempt_from_the_quota() -> None:
    quota = WriteQuota(SizeShares(per_caller=10, in_all=10))

    async def answer(request: web.Request) -> web.StreamResponse:
        stream = channel(request, limits=RequestLimits(keepalive=60, write_timeout=10, quota=quota))
        await stream.open()
        await stream.write(encode_event(b"x" * (EXEMPT_BYTES - 100)))
        return await stream.end(b"last")

    waiting = await taken(quota)
    async with (
        served(answer) as url,
        ClientSession(timeout=ClientTimeout(total=10)) as client,
        client.get(url) as response,
    ):
        assert (await response.text()).endswith("x\n\nlast")
    assert not waiting.done()
    assert quota.refused == 0
    waiting.cancel()


async def test_queued_small_events_of_one_stream_are_counted() -> None:
    quota = WriteQuota(SizeShares(per_caller=1_000_000, in_all=1_000_000))
    ended = asyncio.Event()

    async def flood(request: web.Request) -> web.StreamResponse:
        stream = channel(request, limits=RequestLimits(keepalive=60, write_timeout=60, quota=quota))
        try:
            await asyncio.gather(
                *(stream.write(encode_event(b"x" * 60_000)) for _ in range(1000)), return_exceptions=True
            )
        finally:
            ended.set()
        raise ConnectionResetError

    async with served(flood) as url:
        host, port = url.removeprefix("http://").rstrip("/").split(":")
        _, writer = await asyncio.open_connection(host, int(port), limit=1024)
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        async with asyncio.timeout(20):
            await ended.wait()
        writer.close()
    assert quota.refused > 0
    assert len(quota) == 0


@pytest.mark.parametrize("is_granted", [False, True])
async def test_last_event_follows_an_event_that_waited_for_room(*, is_granted: bool) -> None:
    quota = WriteQuota(SizeShares(per_caller=100_000, in_all=100_000))

    async def answer(request: web.Request) -> web.StreamResponse:
        stream = channel(request, limits=RequestLimits(keepalive=60, write_timeout=10, quota=quota))
        assert quota.take(KEY, 100_000)
        sending = asyncio.create_task(stream.write(encode_event(b"x" * (EXEMPT_BYTES + 1))))
        await asyncio.sleep(0)
        if is_granted:
            quota.release(KEY, 100_000)
        else:
            asyncio.get_running_loop().call_later(0.05, quota.release, KEY, 100_000)
        response = await stream.end(b"last")
        await sending
        return response

    async with (
        served(answer) as url,
        ClientSession(timeout=ClientTimeout(total=10)) as client,
        client.get(url) as response,
    ):
        assert (await response.text()).endswith("x\n\nlast")
    assert len(quota) == 0


async def test_response_follows_a_notification_that_waited_for_room() -> None:
    quota = WriteQuota(SizeShares(per_caller=10, in_all=10))

    async def answer(request: web.Request) -> web.StreamResponse:
        response = late(request, limits=RequestLimits(keepalive=60, write_timeout=10, quota=quota))
        assert quota.take(KEY, 10)
        sending = asyncio.create_task(response.send({**NOTE, "params": {"data": "x" * EXEMPT_BYTES}}))
        for _ in range(3):
            await asyncio.sleep(0)
        asyncio.get_running_loop().call_later(0.05, quota.release, KEY, 10)
        finished = await response.finish(ANSWER)
        await sending
        return finished

    async with served(answer) as url:
        status, media_type, text = await fetch(url, BOTH)
    assert (status, media_type) == (200, "text/event-stream")
    assert [orjson.loads(event.partition("\ndata: ")[2]).get("id") for event in text.split("\n\n")[:2]] == [None, 1]
