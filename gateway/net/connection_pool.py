"""Sends HTTP requests over the connections of one aiohttp session, and bounds what is read of an answer."""

import zlib
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from typing import Any, Final

import aiohttp
import msgspec
from multidict import CIMultiDictProxy
from yarl import URL

from gateway import __version__

USER_AGENT: Final = f"mcp-gateway/{__version__}"


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
        return self.headers.get("Content-Type", "application/octet-stream").partition(";")[0].strip().lower()

    async def read(self, *, max_bytes: int) -> bytes:
        """Read the body, decompressed.

        Raises:
            BodyTooLargeError: it is longer.
            UnknownEncodingError: it is not decompressed, since nothing here knows how.
        """
        chunks, size = [], 0
        while not self.content.at_eof():
            chunk = await self.content.readany()
            # aiohttp has decompressed it: a small answer that unpacks to gigabytes ends here.
            size += len(chunk)
            if size > max_bytes:
                raise BodyTooLargeError
            chunks.append(chunk)
        body = b"".join(chunks)
        for encoding in reversed(self._encodings_left()) if body else ():
            body = _inflated(body, encoding, max_bytes=max_bytes)
        return body

    def _encodings_left(self) -> list[str]:
        """The content encodings that aiohttp has not undone, in the order in which they were applied."""
        fields = [field.strip().lower() for field in self.headers.getall("Content-Encoding", ())]
        if fields and fields[-1] in {"gzip", "deflate", "br", "zstd"}:
            fields.pop()
        names = [name.strip() for name in ",".join(fields).split(",")]
        return [name for name in names if name not in _NOT_ENCODED]


_NOT_ENCODED: Final = frozenset({"", "identity", "none", "utf-8", "binary", "8bit", "aws-chunked"})
"""Names that servers send with a body that is not compressed."""


def _inflated(body: bytes, encoding: str, *, max_bytes: int) -> bytes:
    if encoding.removeprefix("x-") not in {"gzip", "deflate"}:  # RFC 9110 §8.4.1.3: x-gzip is gzip
        raise UnknownEncodingError(encoding)
    # The zlib header that deflate should have (RFC 9110 §8.4.1.2) is left out by some; 32 tells it from that of gzip.
    is_raw = encoding.endswith("deflate") and body[0] & 0x0F != zlib.DEFLATED
    decompressor = zlib.decompressobj(-zlib.MAX_WBITS if is_raw else zlib.MAX_WBITS + 32)
    try:
        content = decompressor.decompress(body, max_bytes + 1)
    except zlib.error as error:
        raise aiohttp.ClientPayloadError(str(error)) from error
    if len(content) > max_bytes:
        raise BodyTooLargeError
    if not decompressor.eof or decompressor.unused_data:
        raise aiohttp.ClientPayloadError("does not end where its compressed content does")
    return content


class BodyTooLargeError(Exception):
    """The body of an answer is longer than its reader takes."""


class UnknownEncodingError(aiohttp.ClientPayloadError):
    """The body of an answer has a content encoding that cannot be undone; its text is the name."""


class Pool:
    """The connections of one session's connector, which stay open at least as long as it is entered."""

    __slots__ = ("session", "users")

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self.session: Final = session
        self.users = 0
        """How many have entered it."""

    @asynccontextmanager
    async def exchange(
        self, method: str, url: URL, *, headers: Collection[tuple[str, str]], body: Any = None
    ) -> AsyncIterator[Answer]:
        """Send a request, and yield its answer: `async with pool.exchange(…) as answer`.

        Redirects are not followed. `body`: bytes, or an aiohttp payload.

        Raises:
            aiohttp.ClientError: there is no answer.
            ValueError: a header field holds a line break.
        """
        request = self.session.request(
            method,
            url.with_user(None),  # aiohttp would make the field Authorization of it
            headers=headers,
            data=body,
            skip_auto_headers=("Content-Type",),  # a body brings its type
            allow_redirects=False,
        )
        async with self, request as answer:
            yield Answer(answer.status, answer.reason or "", answer.headers, answer.content)

    async def __aenter__(self) -> aiohttp.ClientSession:
        self.users += 1
        return self.session

    async def __aexit__(self, *_: object) -> None:
        self.users -= 1
