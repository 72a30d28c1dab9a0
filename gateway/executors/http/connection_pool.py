"""Exchanges one request for its answer, over a connection of aiohttp's pool.

Why not `ClientSession.request`: the request, the writer, the response and the task for a body that it makes cost
several times what the connection does. What guards, encrypts, tunnels, parses and decompresses stays aiohttp's: the
connector, and the protocol that it makes. Neither cookies nor redirects are followed here, and nothing is said twice
but what may be (RFC 9110 §9.2.2), where a kept connection turns out to be closed.
"""

from collections.abc import Collection, Mapping
from typing import Final

import aiohttp
import msgspec
from aiohttp.client_proto import ResponseHandler
from aiohttp.connector import Connection
from aiohttp.http import HttpProcessingError, RawResponseMessage
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from gateway import __version__
from gateway.executors.http.retries import IDEMPOTENT
from gateway.executors.output.media_types import OCTETS

USER_AGENT: Final = f"mcp-gateway/{__version__}"
_WITHOUT_BODY: Final = frozenset({"GET", "HEAD", "OPTIONS"})
"""Methods whose requests need not say that they have none."""
_MAX_TARGETS: Final = 256
_NO_TIMEOUT: Final = aiohttp.ClientTimeout(total=None)
"""Calls have deadlines of their own."""


class Answer(msgspec.Struct, frozen=True):
    """The head of an answer, and the stream of its body."""

    status: int
    reason: str
    headers: CIMultiDictProxy[str]
    """As they came: bytes that are not UTF-8 are half surrogate pairs."""
    content: aiohttp.StreamReader

    @property
    def media_type(self) -> str:
        """The media type without its parameters (RFC 9110 §8.3.1)."""
        return self.headers.get("Content-Type", OCTETS).partition(";")[0].strip().lower()

    async def read(self, *, max_bytes: int) -> bytes:
        """Read the body, decompressed.

        Raises:
            BodyTooLargeError: it is longer.
        """
        chunks, size = [], 0
        while not self.content.at_eof():
            chunk = await self.content.readany()
            # aiohttp has decompressed it: a small answer that unpacks to gigabytes ends here.
            size += len(chunk)
            if size > max_bytes:
                raise BodyTooLargeError
            chunks.append(chunk)
        return b"".join(chunks)


class BodyTooLargeError(Exception):
    """The body of an answer is longer than its reader takes."""


class Target(msgspec.Struct, frozen=True):
    """An origin, and the way to it."""

    request: aiohttp.ClientRequest
    """What the connector asks where it leads, and whether it can lead there by a connection that it has."""
    fields: Mapping[str, str]
    """The lines of header fields that every request has, by name in lower case; its own replace them."""
    is_absolute: bool
    """Whether the request target is the whole URL, for a proxy (RFC 9112 §3.2.2)."""


class Pool:
    """The connections of one session's connector, which stay open at least as long as it is entered."""

    __slots__ = ("_proxy", "_targets", "session", "users")

    def __init__(self, session: aiohttp.ClientSession, *, proxy: str | None) -> None:
        self.session: Final = session
        self.users = 0
        """How many have entered it."""
        self._proxy: Final = None if proxy is None else URL(proxy)
        self._targets: Final[dict[tuple[str, str], Target]] = {}

    def exchange(
        self, method: str, url: URL, *, headers: Collection[tuple[str, str]], body: bytes | None = None
    ) -> "Exchange":
        """Return the exchange of a request for its answer: `async with pool.exchange(…) as answer`."""
        return Exchange(self, method, url, headers=headers, body=body)

    async def __aenter__(self) -> aiohttp.ClientSession:
        self.users += 1
        return self.session

    async def __aexit__(self, *_: object) -> None:
        self.users -= 1

    def target(self, url: URL) -> Target:
        key = (url.scheme, url.raw_authority)
        target = self._targets.get(key)
        if target is None:
            # Hosts may come from arguments. A target is cheap to make again, so no order of use is kept.
            if len(self._targets) >= _MAX_TARGETS:
                self._targets.clear()
            target = self._targets[key] = self._make(url)
        return target

    async def connect(self, target: Target) -> Connection:
        if (connector := self.session.connector) is None:
            raise aiohttp.ClientConnectionError("the pool is closed")
        return await connector.connect(target.request, [], _NO_TIMEOUT)

    def _make(self, url: URL) -> Target:
        # Without its user, of which aiohttp would make the field Authorization.
        request = aiohttp.ClientRequest(
            "GET", url.with_user(None), headers={"User-Agent": USER_AGENT}, proxy=self._proxy
        )
        fields = {name.lower(): f"{name}: {value}" for name, value in request.headers.items()}
        return Target(request, fields, is_absolute=self._proxy is not None and not request.is_ssl())


class Exchange:
    """One request and its answer, as a context: entering sends the one and gives the other."""

    __slots__ = ("_body", "_connection", "_headers", "_method", "_pool", "_url")

    def __init__(
        self,
        pool: Pool,
        method: str,
        url: URL,
        *,
        headers: Collection[tuple[str, str]],
        body: bytes | None,
    ) -> None:
        self._pool = pool
        self._method = method
        self._url = url
        self._headers = headers
        self._body = body
        self._connection: Connection | None = None

    async def __aenter__(self) -> Answer:
        """Raises: aiohttp.ClientError: there is no answer."""
        # Before it connects: a pool without users may be closed to make room for another.
        self._pool.users += 1
        try:
            return await self._sent()
        except BaseException:
            self._pool.users -= 1
            raise

    async def __aexit__(self, *_: object) -> None:
        """Keep the connection for others, unless there is more to come on it, or to go."""
        connection, self._connection = self._connection, None
        if connection is not None:
            transport = connection.transport
            # `release` drops connections whose answer was not read to its end, but overlooks what is still unsent.
            if transport is not None and transport.get_write_buffer_size():
                connection.close()
            else:
                connection.release()
            self._pool.users -= 1

    async def _sent(self) -> Answer:
        pool, may_repeat = self._pool, self._method in IDEMPOTENT
        target = pool.target(self._url)
        while True:
            connection = await pool.connect(target)
            try:
                answer = await self._answer(connection, target)
            # RFC 9112 §9.3.1: a server may close a kept connection at the moment at which it is taken from the pool.
            except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError):
                connection.close()
                if not may_repeat:
                    raise
                may_repeat = False
            except BaseException:
                connection.close()
                raise
            else:
                self._connection = connection
                return answer

    async def _answer(self, connection: Connection, target: Target) -> Answer:
        protocol = connection.protocol
        if protocol is None or protocol.transport is None:
            raise aiohttp.ServerDisconnectedError
        # RFC 9112 §6.3: an answer to HEAD has no body; one without a length ends with its connection.
        protocol.set_response_params(skip_payload=self._method == "HEAD", read_until_eof=True)
        # One write: a head and a body that are sent apart are two segments, and two turns of the server.
        protocol.transport.write(self._head(target) + (self._body or b""))
        message, content = await self._final(protocol)
        return Answer(message.code, message.reason, message.headers, content)

    async def _final(self, protocol: ResponseHandler) -> tuple[RawResponseMessage, aiohttp.StreamReader]:
        """The answer after the interim ones (RFC 9110 §15.2)."""
        try:
            while True:
                message, content = await protocol.read()
                # RFC 9110 §15.2.2: after 101 the connection speaks another protocol, so that no final answer follows.
                if message.code >= 200 or message.code == 101:
                    return message, content
        except HttpProcessingError as error:
            about = aiohttp.RequestInfo(self._url, self._method, CIMultiDictProxy(CIMultiDict()), self._url)
            raise aiohttp.ClientResponseError(about, (), status=error.code, message=error.message) from error

    def _head(self, target: Target) -> bytes:
        method, url, body = self._method, self._url, self._body
        fields = dict(target.fields)
        for name, value in self._headers:
            fields[name.lower()] = f"{name}: {value}"
        if body is not None or method not in _WITHOUT_BODY:
            # RFC 9110 §8.6: POST and its like say a length of 0, too.
            fields.setdefault("content-length", f"Content-Length: {len(body or b'')}")
        lines = [f"{method} {url if target.is_absolute else url.raw_path_qs} HTTP/1.1", *fields.values()]
        # aiohttp adds it when it connects, after `fields` was made. In a tunnel only CONNECT carries it.
        if target.is_absolute and (authorization := target.request.headers.get("Proxy-Authorization")) is not None:
            lines.append(f"Proxy-Authorization: {authorization}")
        head = "\r\n".join(lines)
        # Request splitting: whoever wrote the fields (RFC 9110 §5.5: no CR, LF or NUL), none begins another line.
        if not head.count("\r") == head.count("\n") == len(lines) - 1 or "\0" in head:
            raise ValueError("a header field holds a line break")
        return f"{head}\r\n\r\n".encode("utf-8", "surrogateescape")
