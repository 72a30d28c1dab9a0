"""HTTP clients that share connection pools. Requests with equal `ClientProfile` settings use the same pool.

Cookies are not stored, because callers must not share cookies. Proxies and credentials in environment variables are
ignored. There is no total timeout, because calls have deadlines. aiohttp limits the size of lines, headers and chunks.
`Sender` limits the size and the duration of a response.
"""

import asyncio
import socket
import ssl
import zlib
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from io import BytesIO
from typing import Final, Self

import aiohttp
import msgspec
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.connector import Connection
from aiohttp.http import HttpProcessingError
from multidict import CIMultiDictProxy

from gateway import __version__
from gateway.background_tasks import BackgroundTasks
from gateway.net.address_guard import AddressGuard
from gateway.net.request import Request
from gateway.net.request_facts import steps_of_requests
from gateway.threads import DaemonThreadPool

USER_AGENT: Final = f"mcp-gateway/{__version__}"
_MAX_AT_ONCE: Final = 2**20
"""The maximum size in bytes of a body that is written at once. Larger bodies are written in chunks."""
NO_TIMEOUT: Final = aiohttp.ClientTimeout(total=None)


class ClientProfile(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of HTTP connections. Requests with equal profiles share a connection pool."""

    guard: AddressGuard
    proxy: str | None = None
    """URL of the proxy. The guard must then allow all addresses, because sockets only connect to the proxy."""
    trust: ssl.SSLContext | None = None
    timeout: aiohttp.ClientTimeout = NO_TIMEOUT


class Answer(msgspec.Struct, frozen=True):
    status: int
    reason: str
    headers: CIMultiDictProxy[str]
    """Headers as received. Bytes that are not valid UTF-8 are represented by surrogates."""
    content: aiohttp.StreamReader
    is_redirected: bool = False
    """Whether a redirect led to another origin. A status 401 or 403 of that origin does not concern the credentials."""

    @property
    def media_type(self) -> str:
        """The media type without its parameters (RFC 9110 §8.3.1)."""
        return self.headers.get("Content-Type", "application/octet-stream").partition(";")[0].strip().lower()

    async def read(self, *, max_bytes: int) -> bytes:
        """Read and decompress the body. Raise BodyTooLargeError or UnknownEncodingError."""
        chunks, size = [], 0
        while not self.content.at_eof():
            chunk = await self.content.readany()
            # aiohttp has already decompressed the data, so the limit also stops responses that unpack to gigabytes.
            size += len(chunk)
            if size > max_bytes:
                raise BodyTooLargeError(max_bytes)
            chunks.append(chunk)
        body = b"".join(chunks)
        for encoding in reversed(self._encodings_left()) if body else ():
            body = _inflated(body, encoding, max_bytes=max_bytes)
        return body

    def _encodings_left(self) -> list[str]:
        fields = [field.strip().lower() for field in self.headers.getall("Content-Encoding", ())]
        if fields and fields[-1] in {"gzip", "deflate", "br", "zstd"}:
            fields.pop()
        names = [name.strip() for name in ",".join(fields).split(",")]
        return [name for name in names if name not in _NOT_ENCODED]


_NOT_ENCODED: Final = frozenset({"", "identity", "none", "utf-8", "binary", "8bit", "aws-chunked"})


def _inflated(body: bytes, encoding: str, *, max_bytes: int) -> bytes:
    if encoding.removeprefix("x-") not in {"gzip", "deflate"}:  # RFC 9110 §8.4.1.3: x-gzip is gzip.
        raise UnknownEncodingError(encoding)
    # Some servers omit the zlib header of deflate (RFC 9110 §8.4.1.2). 32 detects zlib and gzip headers.
    is_raw = encoding.endswith("deflate") and body[0] & 0x0F != zlib.DEFLATED
    decompressor = zlib.decompressobj(-zlib.MAX_WBITS if is_raw else zlib.MAX_WBITS + 32)
    try:
        content = decompressor.decompress(body, max_bytes + 1)
    except zlib.error as error:
        raise aiohttp.ClientPayloadError(str(error)) from error
    if len(content) > max_bytes:
        raise BodyTooLargeError(max_bytes)
    if not decompressor.eof or decompressor.unused_data:
        raise aiohttp.ClientPayloadError("the compressed content is truncated or followed by other data")
    return content


class BodyTooLargeError(Exception):
    """The body of a response exceeds the limit."""

    def __init__(self, max_bytes: int) -> None:
        super().__init__(max_bytes)
        self.max_bytes = max_bytes


class UnknownEncodingError(aiohttp.ClientPayloadError):
    """The content encoding of a response is not supported. The message is the name of the encoding."""


class Pool:
    """A connection pool with one aiohttp session. Inside `async with`, the session stays open."""

    __slots__ = ("session", "users")

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self.session: Final = session
        self.users = 0

    def request(self, request: Request) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        """Send a request when the context is entered, without following redirects.

        Raises:
            aiohttp.ClientError: The request failed.
            ValueError: A header contains a line break.
        """
        url, body = request.url, request.body
        return self.session.request(
            request.method,
            # aiohttp would create an `Authorization` header from a user.
            url.with_user(None) if "@" in url.raw_authority else url,
            headers=[(header.name, header.value) for header in request.headers],
            data=BytesIO(body) if body is not None and len(body) > _MAX_AT_ONCE else body,
            allow_redirects=False,
        )

    async def __aenter__(self) -> aiohttp.ClientSession:
        self.users += 1
        return self.session

    async def __aexit__(self, *_: object) -> None:
        self.users -= 1


MAX_POOLS: Final = 64
"""The maximum number of pools. Reloads leave unused pools behind, so the least recently used idle pool is closed."""

MAX_LOOKUPS: Final = 16
"""The maximum number of concurrent DNS lookups. Lookups have their own threads, so that plugins cannot delay them."""


class HttpClients:
    def __init__(self) -> None:
        self._pools: OrderedDict[ClientProfile, Pool] = OrderedDict()
        self._closing: Final = BackgroundTasks()
        self._lookups = DaemonThreadPool(MAX_LOOKUPS)
        self._shared: aiohttp.ClientSession | None = None
        self._is_open = False

    async def __aenter__(self) -> Self:
        self._is_open = True
        return self

    async def __aexit__(self, *_: object) -> None:
        self._is_open = False
        pools, self._pools = self._pools, OrderedDict()
        for pool in pools.values():
            await pool.session.close()
        await self._closing.wait()
        if self._shared is not None:
            await self._shared.close()
        await self._lookups.stop()

    @property
    def shared(self) -> aiohttp.ClientSession:
        """The aiohttp session for plugins (`Context.http`). It blocks private addresses and traces each request."""
        if not self._is_open:
            raise RuntimeError("The HTTP clients have not been started")
        if self._shared is None:
            profile = ClientProfile(guard=AddressGuard())
            self._shared = _open(profile, self._lookups, trace_configs=[steps_of_requests()])
        return self._shared

    async def addresses_of(self, host: str) -> list[str]:
        """Return the addresses of a host name. Raise OSError if the lookup fails."""
        resolver = DaemonResolver(self._lookups)
        return [found["host"] for found in await resolver.resolve(host)]

    def pool(self, profile: ClientProfile) -> Pool:
        """Return the pool for a profile. Usage: `async with clients.pool(profile) as session`."""
        pool = self._pools.get(profile)
        if pool is None:
            self._make_room()
            pool = self._pools[profile] = Pool(_open(profile, self._lookups, skip_auto_headers=["Content-Type"]))
        self._pools.move_to_end(profile)
        return pool

    def _make_room(self) -> None:
        unused = [profile for profile, pool in self._pools.items() if not pool.users]
        for profile in unused[: max(0, len(self._pools) + 1 - MAX_POOLS)]:
            session = self._pools.pop(profile).session
            # Close in the background: during an await, another call could open a second pool for the same profile.
            self._closing.begin(session.close(), name="close a pool of connections")


def _open(
    profile: ClientProfile,
    lookups: DaemonThreadPool,
    *,
    trace_configs: list[aiohttp.TraceConfig] | None = None,
    skip_auto_headers: Sequence[str] = (),
) -> aiohttp.ClientSession:
    connector = aiohttp.TCPConnector(
        # No limit: `concurrency` already limits calls, and calls would wait unnoticed in a second queue.
        limit=0,
        resolver=DaemonResolver(lookups),
        socket_factory=profile.guard.open_socket,
        ssl=profile.trust or True,
    )
    return aiohttp.ClientSession(
        connector=connector,
        cookie_jar=aiohttp.DummyCookieJar(),
        headers={"User-Agent": USER_AGENT},
        proxy=profile.proxy,
        timeout=profile.timeout,
        trace_configs=trace_configs,
        skip_auto_headers=skip_auto_headers,
        response_class=_BoundedResponse,
        max_line_size=_MAX_HEADER,
        max_field_size=_MAX_HEADER,
    )


_MAX_HEADER: Final = 64 * 1024
"""Maximum size of a header field in bytes. Policies and cookies can exceed aiohttp's default of 8190."""
MAX_INTERIM: Final = 20
"""The maximum number of interim responses (1xx) before the final one. RFC 8297 expects a few. aiohttp has no limit."""


class _BoundedResponse(aiohttp.ClientResponse):
    """A response that fails after more than `MAX_INTERIM` interim responses."""

    async def start(self, connection: Connection) -> aiohttp.ClientResponse:
        protocol = connection.protocol
        if protocol is None:
            raise aiohttp.ServerDisconnectedError
        for _ in range(MAX_INTERIM + 1):
            try:
                head, body = await protocol.read()
            except HttpProcessingError as error:
                raise aiohttp.ClientResponseError(self.request_info, (), message=error.message) from error
            # RFC 9110 §15.2.2: after 101 the connection uses another protocol, so no other response follows.
            if head.code >= 200 or head.code == 101:
                protocol.feed_data((head, body))  # aiohttp reads the head again.
                return await super().start(connection)
        connection.close()
        raise aiohttp.ClientResponseError(self.request_info, (), message="too many interim (1xx) responses")


_LOOKUP_TIMEOUT: Final = 60.0
"""The timeout of a DNS lookup in seconds. Calls that wait for a lookup also have deadlines."""


class DaemonResolver(AbstractResolver):
    """Resolves host names with the system's resolver in daemon threads.

    aiohttp's resolver uses the event loop's executor or libuv's threads, which are joined at exit. A name server that
    does not respond would delay the exit by half a minute.
    """

    def __init__(self, threads: DaemonThreadPool) -> None:
        self._threads = threads

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        deadline = asyncio.get_running_loop().time() + _LOOKUP_TIMEOUT
        return await self._threads.run(_look_up, host, port, family, deadline=deadline)

    async def close(self) -> None: ...


def _look_up(host: str, port: int, family: int) -> list[ResolveResult]:
    try:
        # Without a socket type, each address is returned once per type.
        infos = socket.getaddrinfo(host, port, family=family, type=socket.SOCK_STREAM)
    except UnicodeError as error:  # A label is empty or has more than 63 characters.
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known") from error
    flags = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV
    return [
        ResolveResult(hostname=host, host=str(address[0]), port=port, family=found, proto=protocol, flags=flags)
        for found, _, protocol, _, address in infos
    ]
