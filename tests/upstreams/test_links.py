"""Failures, resumption and bounds of links to upstreams."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Final

import pytest
from aiohttp import web
from yarl import URL

from gateway.background_tasks import BackgroundTasks
from gateway.json_types import Json, JsonObject
from gateway.net.address_guard import AddressPolicy
from gateway.net.clients import HttpClients
from gateway.net.sender import Sender
from gateway.processes.pipes import InputBuffer
from gateway.processes.process_tree import Command
from gateway.processes.processes import Processes
from gateway.upstreams.client.http_link import LEAST_PAUSE, HttpChannel, HttpLink
from gateway.upstreams.client.link import Incoming, Unreadable
from gateway.upstreams.client.server_messages import MAX_OPEN_REQUESTS, ServerMessages
from gateway.upstreams.client.sse_link import SseLink
from gateway.upstreams.client.stdio_link import LineTail, StdioLink
from gateway.upstreams.failures import ConnectionLostError, UnreachableError
from gateway.wire.jsonrpc import Request, RequestId
from tests import local_server
from tests.upstreams.test_failures import config, gateway, said, until_listed

SECONDS: Final = 30.0
NOTIFICATION: Final = '{"jsonrpc": "2.0", "method": "notifications/progress"}'
PING: Final[JsonObject] = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
TEXT_RESULT: Final = '{"jsonrpc": "2.0", "id": ID, "result": "done"}'


def no_memory(_: object) -> Command:
    raise MemoryError


def talkative(lasting: InputBuffer) -> Command:
    """Return a server that sends a notification for each request, and no response."""
    script = f"while read -r line; do echo '{NOTIFICATION}'; done"
    return Command(argv=["/bin/sh", "-c", script], environment={}, directory="/", lasting_input=lasting)


def refuses_all(message: Incoming, during: RequestId | None) -> None:
    del message, during
    raise MemoryError


@pytest.mark.parametrize(
    ("command", "expected"), [(no_memory, UnreachableError), (talkative, ConnectionLostError)], ids=["start", "message"]
)
async def test_internal_error_fails_the_link_and_its_calls(
    command: Callable[[InputBuffer], Command], expected: type[Exception]
) -> None:
    async with asyncio.timeout(SECONDS), Processes() as processes:
        link = StdioLink(command, processes=processes, stderr_tail=LineTail())

        async def ping() -> None:
            await link.open(refuses_all, subject=None)
            await link.request(PING, {}, subject=None)

        with pytest.raises(expected, match="internal error"):
            await ping()
        assert "internal error" in await link.closed
        await link.close()


class IgnoringListener:
    """A `Listener` that ignores everything."""

    async def session_opened(self, watch: Callable[[frozenset[str]], Awaitable[None]]) -> None: ...
    def lists_changed(self) -> None: ...
    def resource_updated(self, uri: str) -> None: ...
    def unreadable(self, message: Unreadable) -> None: ...


async def test_open_requests_of_a_server_are_bounded() -> None:
    sent = 0

    async def send(_message: JsonObject) -> None:
        nonlocal sent
        sent += 1
        await asyncio.Event().wait()

    tasks = BackgroundTasks()
    messages = ServerMessages(IgnoringListener(), send=send, tasks=tasks)
    for number in range(3 * MAX_OPEN_REQUESTS):
        messages.take(Request(number % (2 * MAX_OPEN_REQUESTS), "ping", {}), None)
    while sent < MAX_OPEN_REQUESTS:
        await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert sent == MAX_OPEN_REQUESTS
    await tasks.cancel()


@asynccontextmanager
async def http_endpoint(application: web.Application, path: str) -> AsyncIterator[HttpChannel]:
    async with local_server.listening(application) as port, HttpClients() as clients:
        policy = AddressPolicy(hosts=frozenset({"127.0.0.1"}))
        sender = Sender(clients=clients, policy=policy)
        yield HttpChannel(URL(f"http://127.0.0.1:{port}{path}"), headers={}, sender=sender)


@asynccontextmanager
async def sse_link(answer: str) -> AsyncIterator[SseLink]:
    """Yield a link to a server that sends one message after the first POST."""
    posted = asyncio.Event()

    async def stream(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(b"event: endpoint\ndata: /messages\n\n")
        await posted.wait()
        await response.write(f"data: {answer}\n\n".encode())
        await asyncio.Event().wait()  # until the client disconnects
        return response

    async def take(_request: web.Request) -> web.Response:
        posted.set()
        return web.Response(status=202)

    application = web.Application()
    application.router.add_get("/sse", stream)
    application.router.add_post("/messages", take)
    async with asyncio.timeout(SECONDS), http_endpoint(application, "/sse") as endpoint:
        link = SseLink(endpoint)
        yield link
        await link.close()


async def test_internal_error_fails_an_sse_link() -> None:
    async with sse_link(NOTIFICATION) as link:
        await link.open(refuses_all, subject=None)
        with pytest.raises(ConnectionLostError, match="internal error"):
            await link.request(PING, {}, subject=None)


async def test_invalid_sse_response_fails_its_request() -> None:
    async with sse_link(f'[{NOTIFICATION}, {{"jsonrpc": "2.0", "id": 1, "result": {{}}, "error": {{}}}}]') as link:
        received: list[Incoming] = []
        await link.open(lambda message, during: received.append(message), subject=None)
        response = await link.request(PING, {}, subject=None)
        assert response.error is not None
        assert len(received) == 1


async def test_zero_retry_does_not_cause_a_tight_loop() -> None:
    asked = 0

    async def stream(_request: web.Request) -> web.Response:
        nonlocal asked
        asked += 1
        return web.Response(text="retry: 0\n\n", content_type="text/event-stream")

    async def answer(_request: web.Request) -> web.Response:
        return web.json_response({"jsonrpc": "2.0", "id": 1, "result": {}})

    application = web.Application()
    application.router.add_get("/mcp", stream)
    application.router.add_post("/mcp", answer)
    async with asyncio.timeout(SECONDS), http_endpoint(application, "/mcp") as endpoint:
        link, began = HttpLink(endpoint), monotonic()
        await link.open(refuses_all, subject=None)
        listening = asyncio.create_task(link.listen(dict, partial(link.request, PING, {}, subject=None)))
        for _ in range(200):
            await link.request(PING, {}, subject=None)
        assert asked <= 2 + (monotonic() - began) / LEAST_PAUSE
        listening.cancel()
        await link.close()


async def test_short_retry_is_respected() -> None:
    """With increasing delays, twelve streams would take half an hour."""
    wanted = asyncio.Semaphore(0)

    async def stream(_request: web.Request) -> web.Response:
        wanted.release()
        return web.Response(text="id: 1\nretry: 50\ndata:\n\n", content_type="text/event-stream")

    application = web.Application()
    application.router.add_get("/mcp", stream)
    async with asyncio.timeout(SECONDS), http_endpoint(application, "/mcp") as endpoint:
        link = HttpLink(endpoint)
        await link.open(refuses_all, subject=None)
        listening = asyncio.create_task(link.listen(dict, partial(link.request, PING, {}, subject=None)))
        for _ in range(12):
            await wanted.acquire()
        listening.cancel()
        await link.close()


class ResumingServer:
    """A server of 2025-11-25 whose call streams end early and can be resumed."""

    def __init__(
        self, *, ends: int = 0, refusals: int = 0, is_gone: bool = False, answer: JsonObject | None = None
    ) -> None:
        """`answer` contains arguments of a `web.Response` to calls, instead of a stream."""
        self._answer: Final = answer
        self._ends: Final = ends
        self._refusals = refusals
        self._is_gone: Final = is_gone
        self.calls = 0
        self.application: Final = web.Application()
        self.application.router.add_post("/mcp", self._post)
        self.application.router.add_get("/mcp", self._resume)

    async def _post(self, request: web.Request) -> web.StreamResponse:
        message = await request.json()
        results: dict[str, Json] = {
            "initialize": {
                "protocolVersion": "2025-11-25",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "t", "version": "1"},
            },
            "tools/list": {"tools": [{"name": "work", "inputSchema": {"type": "object"}}]},
        }
        if "id" not in message:
            return web.Response(status=202)
        if message["method"] == "tools/call":
            self.calls += 1
            if self._answer is not None:
                text = str(self._answer.get("text", "")).replace("ID", str(message["id"]))
                return web.Response(**{**self._answer, "text": text})
            return await self._stream(request, 0, message["id"])
        if message["method"] not in results:
            error = {"code": -32601, "message": "Unknown method"}
            return web.json_response({"jsonrpc": "2.0", "id": message["id"], "error": error})
        answer = {"jsonrpc": "2.0", "id": message["id"], "result": results[message["method"]]}
        return web.json_response(answer, headers={"Mcp-Session-Id": "s"})

    async def _resume(self, request: web.Request) -> web.StreamResponse:
        place = request.headers.get("Last-Event-ID")
        if place is None:
            return web.Response(status=405)
        if self._is_gone:
            return web.Response(status=404)
        if self._refusals:
            self._refusals -= 1
            return web.Response(status=503, text="busy")
        number, request_id = map(int, place.split("-"))
        return await self._stream(request, number + 1, request_id)

    async def _stream(self, request: web.Request, number: int, request_id: int) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        with suppress(ConnectionError):
            await response.prepare(request)
            await response.write(f"id: {number}-{request_id}\nretry: 1\ndata:\n\n".encode())
            if number >= self._ends:
                text = '{"content": [{"type": "text", "text": "done"}]}'
                await response.write(f'data: {{"jsonrpc": "2.0", "id": {request_id}, "result": {text}}}\n\n'.encode())
        return response


@pytest.mark.parametrize(
    ("behaviour", "answer"),
    [
        ({"ends": 50}, "done"),
        ({"ends": 1, "refusals": 5}, "done"),
        ({"ends": 1, "refusals": 1000}, "busy"),
        ({"ends": 1, "is_gone": True}, "the session has ended"),
        ({"answer": {"text": "<p>Done", "content_type": "text/html"}}, "responds with 200 text/html"),
        ({"answer": {"status": 202}}, "responds with 202 text/plain"),
        ({"answer": {"text": TEXT_RESULT, "content_type": "application/json"}}, "a result that is not an object"),
    ],
    ids=["many ends", "a few refusals", "only refusals", "session gone", "a page", "no answer", "a result of text"],
)
async def test_started_call_is_resumed_and_never_repeated(
    tmp_path: Path, behaviour: dict[str, Json], answer: str
) -> None:
    server = ResumingServer(**behaviour)
    async with local_server.listening(server.application) as port:
        entry = f"url: 'http://127.0.0.1:{port}/mcp', allow_private: true, era: legacy"
        async with asyncio.timeout(SECONDS), gateway(config(tmp_path, web=entry)) as running:
            await until_listed(running, "web_work")
            assert answer in await said(running.memory_client(), "web_work")
    assert server.calls == 1


async def test_private_proxy_is_allowed_for_public_servers() -> None:
    asked: list[str] = []

    async def forward(request: web.Request) -> web.Response:
        asked.append(request.raw_path)
        return web.json_response({"jsonrpc": "2.0", "id": 1, "result": {}})

    application = web.Application()
    application.router.add_post("/{path:.*}", forward)
    async with asyncio.timeout(SECONDS), http_endpoint(application, "") as proxy, HttpClients() as clients:
        sender = Sender(clients=clients, proxy=str(proxy.url))
        for host, expected in (("server.invalid", nullcontext()), ("10.1", pytest.raises(UnreachableError))):
            link = HttpLink(HttpChannel(URL(f"http://{host}/mcp"), headers={}, sender=sender))
            await link.open(refuses_all, subject=None)
            with expected:
                await link.request(PING, {}, subject=None)
    assert asked == ["http://server.invalid/mcp"]
