"""Sends HTTP requests over the connections of one aiohttp session, and bounds what is read of an answer."""

from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from typing import Any, Final

import aiohttp
import msgspec
from multidict import CIMultiDictProxy
from yarl import URL

from gateway import __version__
from gateway.executors.http.content_encoding import BodyTooLargeError, decoded_content
from gateway.executors.output.media_types import OCTETS

_DECODED_BY_AIOHTTP: Final = frozenset({"gzip", "deflate", "br", "zstd"})

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
        return self.headers.get("Content-Type", OCTETS).partition(";")[0].strip().lower()

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
        return decoded_content(b"".join(chunks), self._encodings_left(), max_bytes=max_bytes)

    def _encodings_left(self) -> list[str]:
        """The content encodings of the body that aiohttp has not decoded, in the order in which they were applied."""
        fields = [field.strip().lower() for field in self.headers.getall("Content-Encoding", ())]
        if fields and fields[-1] in _DECODED_BY_AIOHTTP:
            fields.pop()
        return [encoding.strip() for encoding in ",".join(fields).split(",")]


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
