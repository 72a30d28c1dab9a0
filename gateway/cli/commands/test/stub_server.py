"""A stub server on loopback that replaces the server of an HTTP backend."""

from pathlib import Path
from types import TracebackType
from typing import Final, Self

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
from gateway.net.tls import ClientIdentity


class StubServer:
    """Sends the same response to every request, inside a `with` block."""

    def __init__(self, answer: StubResponse, *, directory: Path) -> None:
        """`directory` contains the file of the response."""
        self._answer: Final = answer
        self._directory: Final = directory
        self._body = b""
        self._runner: Final = web.AppRunner(self._application(), access_log=None)
        self.origin: URL

    async def __aenter__(self) -> Self:
        """Listen on a free port.

        Raises:
            ExecutionError: the file of the response cannot be read.
        """
        self._body = self._read()
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.origin = URL(f"http://127.0.0.1:{site.port}")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._runner.cleanup()

    def _application(self) -> web.Application:
        application = web.Application()
        application.router.add_route("*", "/{path:.*}", self._handle)
        return application

    async def _handle(self, _request: web.Request) -> web.Response:
        media_type = media_type_of(self._answer.file) if self._answer.file else None
        kind = "application/json" if self._answer.has_json else media_type or OCTETS
        return web.Response(status=self._answer.status, body=self._body, headers={"Content-Type": kind})

    def _read(self) -> bytes:
        if self._answer.file is None:
            return orjson.dumps(self._answer.json_) if self._answer.has_json else b""
        try:
            return (self._directory / self._answer.file).read_bytes()
        except OSError as error:
            raise ExecutionError(f"the file {self._answer.file} cannot be read: {error.strerror}") from error


def diverted_to(executor: Executor, stub: StubServer) -> Executor:
    """Return the executor without its cache. All requests go to the stub."""
    match executor:
        case CachingExecutor():
            return diverted_to(executor.executor, stub)
        case HttpExecutor(sender=Sender() as sender):
            # Without authorization, which would contact the real server.
            return replace(executor, sender=_Diverted(sender, stub.origin), authorization=None)
    raise TypeError(f"{type(executor).__name__} sends no HTTP requests")


class _Diverted(msgspec.Struct, frozen=True):
    """Sends requests to the stub, without the proxy, client certificate and redirects of the real server."""

    sender: Sender
    origin: URL

    async def send(self, request: Request, *, deadline: float) -> Response:
        # The connection's address guard can refuse loopback.
        here = replace(self.sender, policy=ANYWHERE, proxy=None, identity=ClientIdentity(), max_redirects=0)
        host = Header(name="Host", value=request.url.raw_authority, is_bound=True)
        url = URL(f"{self.origin}{request.url.raw_path_qs}", encoded=True)
        return await here.send(replace(request, url=url, headers=(*_but_host(request), host)), deadline=deadline)

    def facts(self, host: str) -> JsonObject:
        return self.sender.facts(host)


def _but_host(request: Request) -> tuple[Header, ...]:
    return tuple(header for header in request.headers if header.name.lower() != "host")
