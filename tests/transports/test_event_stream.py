"""Server-sent events on a real connection: what is written, how often, and to whom no longer."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import orjson
from aiohttp import ClientSession, ClientTimeout, web
from aiohttp.test_utils import TestServer

from gateway.protocol.exchange import Binding, Caller, Reply
from gateway.transports.accept import parse_accept
from gateway.transports.event_stream import EventStream, Pace
from gateway.transports.late_response import LateResponse

CALLER = Caller(binding=Binding.STREAMABLE_HTTP)
BOTH = {"Accept": "application/json, text/event-stream"}
NOTE = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"data": "line\nbreak"}}
ANSWER = Reply(body=b'{"jsonrpc":"2.0","id":1,"result":{}}')
QUIET = Pace(keepalive=60)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def served(handler: Handler) -> AsyncIterator[str]:
    application = web.Application()
    application.router.add_route("*", "/", handler)
    async with TestServer(application, access_log=None, handler_cancellation=True) as server:
        yield str(server.make_url("/"))


def late(request: web.Request, *, pace: Pace = QUIET) -> LateResponse:
    accepted = parse_accept(request.headers.get("Accept"))
    return LateResponse(request, caller=CALLER, accepted=accepted, pace=pace, headers={"X-Mark": "here"})


async def fetch(url: str, headers: dict[str, str]) -> tuple[int, str, str]:
    async with (
        ClientSession(timeout=ClientTimeout(total=10)) as client,
        client.get(url, headers=headers) as response,
    ):
        assert response.headers["X-Mark"] == "here"
        return response.status, response.content_type, await response.text()


async def test_an_answer_alone_is_plain_json_with_its_status() -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        return await late(request).finish(Reply(body=b'{"error":1}', status=404))

    async with served(answer) as url:
        assert await fetch(url, BOTH) == (404, "application/json", '{"error":1}')


async def test_a_message_before_the_answer_makes_it_a_stream_of_events() -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        response = late(request)
        await response.send(NOTE)
        return await response.finish(ANSWER)

    async with served(answer) as url:
        status, media_type, text = await fetch(url, BOTH)
    assert (status, media_type) == (200, "text/event-stream")
    events = text.split("\n\n")
    assert [event.partition("\n")[0] for event in events] == ["event: message", "event: message", ""]
    first, second = (orjson.loads(event.partition("\ndata: ")[2]) for event in events[:2])
    assert first == NOTE
    assert second["result"] == {}


async def test_an_error_after_the_stream_began_is_its_last_event() -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        response = late(request)
        await response.send(NOTE)
        return await response.finish(Reply(body=b'{"error":1}', status=400))

    async with served(answer) as url:
        status, media_type, text = await fetch(url, BOTH)
    assert (status, media_type) == (200, "text/event-stream")
    assert text.endswith('data: {"error":1}\n\n')


async def test_who_takes_json_alone_gets_the_answer_without_the_messages() -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        response = late(request)
        await response.send(NOTE)
        return await response.finish(ANSWER)

    async with served(answer) as url:
        assert (await fetch(url, {"Accept": "application/json"}))[1] == "application/json"


async def test_who_takes_streams_alone_gets_a_stream_but_an_early_error_keeps_its_status() -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        status = int(request.query.get("status", "200"))
        return await late(request).finish(Reply(body=ANSWER.body, status=status))

    async with served(answer) as url:
        assert (await fetch(url, {"Accept": "text/event-stream"}))[1] == "text/event-stream"
        assert (await fetch(f"{url}?status=400", {"Accept": "text/event-stream"}))[0] == 400


async def test_nothing_to_say_is_202_without_a_body() -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        return await late(request).finish(Reply(body=None))

    async with served(answer) as url:
        status, _, text = await fetch(url, BOTH)
    assert (status, text) == (202, "")


async def test_a_slow_answer_becomes_a_stream_whose_comments_keep_it_alive() -> None:
    release = asyncio.Event()

    async def answer(request: web.Request) -> web.StreamResponse:
        response = late(request, pace=Pace(keepalive=0.02))
        await release.wait()
        return await response.finish(ANSWER)

    async with (
        served(answer) as url,
        ClientSession(timeout=ClientTimeout(total=10)) as client,
        client.get(url, headers=BOTH) as response,
    ):
        assert response.content_type == "text/event-stream"
        for _ in range(3):
            assert await response.content.readuntil(b"\n\n") == b":\n\n"
        release.set()
        rest = await response.text()
    assert rest.endswith('"result":{}}\n\n')
    assert rest.count("data:") == 1


async def test_who_did_not_name_streams_waits_for_plain_json() -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        response = late(request)
        await asyncio.sleep(1.2)
        return await response.finish(ANSWER)

    async with served(answer) as url:
        assert (await fetch(url, {"Accept": "*/*"}))[1] == "application/json"


async def test_a_stream_says_at_once_that_it_is_open_and_is_not_buffered_by_proxies() -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        stream = EventStream(request, pace=QUIET, headers={})
        await stream.open()
        return await stream.close()

    async with (
        served(answer) as url,
        ClientSession(timeout=ClientTimeout(total=10)) as client,
        client.get(url) as response,
    ):
        assert response.headers["X-Accel-Buffering"] == "no"
        assert response.headers["Cache-Control"] == "no-cache, no-transform"
        assert await response.text() == ":\n\n"


async def test_a_reader_that_does_not_read_is_dropped() -> None:
    ended = asyncio.Event()
    sent = 0

    async def flood(request: web.Request) -> web.StreamResponse:
        nonlocal sent
        stream = EventStream(request, pace=Pace(keepalive=60, patience=0.1), headers={})
        try:
            while True:
                await stream.send(b"x" * 100_000)
                sent += 1
        finally:
            stream.abandon()
            ended.set()

    async with served(flood) as url:
        host, port = url.removeprefix("http://").rstrip("/").split(":")
        reader, writer = await asyncio.open_connection(host, int(port), limit=1024)
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        async with asyncio.timeout(10):
            await ended.wait()
        assert sent < 200
        writer.close()
        assert not reader.at_eof()


async def test_a_large_plain_answer_to_a_reader_that_does_not_read_is_dropped_too() -> None:
    ended = asyncio.Event()

    async def answer(request: web.Request) -> web.StreamResponse:
        try:
            return await late(request, pace=Pace(keepalive=60, patience=0.1)).finish(Reply(body=b"x" * 30_000_000))
        finally:
            ended.set()

    async with served(answer) as url:
        host, port = url.removeprefix("http://").rstrip("/").split(":")
        _, writer = await asyncio.open_connection(host, int(port), limit=1024)
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        async with asyncio.timeout(10):
            await ended.wait()
        writer.close()


async def test_when_the_reader_leaves_the_handler_is_cancelled_and_no_timer_stays() -> None:
    ended = asyncio.Event()
    before = asyncio.all_tasks()

    async def wait(request: web.Request) -> web.StreamResponse:
        stream = EventStream(request, pace=Pace(keepalive=0.01), headers={})
        try:
            await stream.open()
            await asyncio.Event().wait()
        finally:
            stream.abandon()
            ended.set()
        return await stream.close()

    async with served(wait) as url:
        async with ClientSession() as client:
            response = await client.get(url)
            await response.content.readuntil(b"\n\n")
            response.close()
        async with asyncio.timeout(20):
            await ended.wait()
    async with asyncio.timeout(20):
        while {task for task in asyncio.all_tasks() - before if "keep-alive" in task.get_name()}:
            await asyncio.sleep(0)
