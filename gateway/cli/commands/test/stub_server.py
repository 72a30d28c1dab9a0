"""Starts a stub server on loopback, and sends the requests of an HTTP backend to the stub."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import orjson
from aiohttp import web
from msgspec.structs import replace
from yarl import URL

from gateway.config.models.tool_tests import StubResponse
from gateway.errors import ExecutionError
from gateway.executors.cache import CachingExecutor
from gateway.executors.http.executor import HttpExecutor
from gateway.executors.invocation import Executor
from gateway.executors.output.media_types import OCTETS
from gateway.json_types import JsonObject
from gateway.language.files.media_types import media_type_of
from gateway.net.address_guard import ANYWHERE
from gateway.net.request import Header, Request
from gateway.net.sender import Response, Sender


@asynccontextmanager
async def stub_server(answer: StubResponse, *, directory: Path) -> AsyncIterator[URL]:
    """Start a server that returns the same response to every request, and yield the origin of the server.

    Raises:
        ExecutionError: the response file, which is relative to `directory`, cannot be read.
    """
    body = orjson.dumps(answer.json_) if answer.has_json else b""
    media_type = "application/json" if answer.has_json else OCTETS
    if answer.file is not None:
        try:
            body = (directory / answer.file).read_bytes()
        except OSError as error:
            raise ExecutionError(f"the file {answer.file} cannot be read: {error.strerror}") from error
        media_type = media_type_of(answer.file) or OCTETS

    async def handle(_request: web.BaseRequest) -> web.Response:
        return web.Response(status=answer.status, body=body, headers={"Content-Type": media_type})

    runner = web.ServerRunner(web.Server(handle))
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        yield URL(f"http://127.0.0.1:{site.port}")
    finally:
        await runner.cleanup()


def diverted_to(executor: Executor, origin: URL) -> Executor:
    """Return a copy of the executor that has no cache and sends all requests to the stub at `origin`."""
    match executor:
        case CachingExecutor():
            return diverted_to(executor.executor, origin)
        case HttpExecutor(sender=Sender() as sender):
            # Remove the authorization, because fetching a token could contact a real server.
            return replace(executor, sender=_Diverted(sender, origin), authorization=None)
    raise TypeError(f"{type(executor).__name__} sends no HTTP requests")


class _Diverted(msgspec.Struct, frozen=True):
    """Sends requests to the stub, without the proxy, client certificate and redirects of the real server."""

    sender: Sender
    origin: URL

    async def send(self, request: Request, *, deadline: float) -> Response:
        # Allow all addresses, because the address guard of the connection can refuse the loopback address.
        here = replace(self.sender, policy=ANYWHERE, proxy=None, trust=(None, None), max_redirects=0)
        host = Header(name="Host", value=request.url.raw_authority, is_bound=True)
        others = (header for header in request.headers if header.name.lower() != "host")
        url = URL(f"{self.origin}{request.url.raw_path_qs}", encoded=True)
        return await here.send(replace(request, url=url, headers=(*others, host)), deadline=deadline)

    def facts(self, host: str) -> JsonObject:
        return self.sender.facts(host)
