"""A request body of several pieces: bytes in memory, and files that are read while they are sent.

The pieces are not copied into one buffer. The length is known in advance, and a body can be sent again.
"""

import hashlib
from collections.abc import Iterator
from typing import Final, Protocol

import msgspec
from aiohttp.abc import AbstractStreamWriter
from aiohttp.payload import Payload

from gateway.errors import ExecutionError
from gateway.json_types import Json

_CHUNK: Final = 2**20
"""Bytes to read or write at a time."""


class Source(Protocol):
    """Bytes that are read while they are sent, such as a file."""

    @property
    def size(self) -> int: ...
    @property
    def identity(self) -> str:
        """Identifies the bytes without reading them."""

    async def read(self, offset: int, size: int) -> bytes:
        """Return at least one and at most `size` bytes.

        Raises:
            ExecutionError: The bytes cannot be read, or have changed.
        """


class StreamedBody(msgspec.Struct, frozen=True, kw_only=True):
    pieces: tuple[bytes | Source, ...]
    description: Json
    """The content without the bytes of files, for `explain`."""
    boundary: bytes = b""

    @property
    def size(self) -> int:
        return sum(len(piece) if isinstance(piece, bytes) else piece.size for piece in self.pieces)

    @property
    def key(self) -> str:
        """A cache key. Equal for bodies with the same content."""
        digest = hashlib.sha256()
        for piece in self.pieces:
            if isinstance(piece, bytes):
                said = piece.replace(self.boundary, b"") if self.boundary else piece
            else:
                said = piece.identity.encode()
            # Use digests, which have a fixed length, so that the concatenation is unambiguous.
            digest.update(hashlib.sha256(said).digest())
        return digest.hexdigest()


class PiecesPayload(Payload):
    """Writes a body to one connection."""

    def __init__(self, body: StreamedBody) -> None:
        super().__init__(body)
        # aiohttp sends Content-Length for a payload with a size, and chunks otherwise.
        self._size = body.size
        self._pieces: Final = body.pieces
        self.error: ExecutionError | None = None
        """The reason why the body could not be written, if that was ours."""

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:  # noqa: ARG002 - aiohttp's interface
        raise TypeError("a body with files is not text")

    async def write(self, writer: AbstractStreamWriter) -> None:
        for piece in self._pieces:
            if isinstance(piece, bytes):
                for chunk in _chunks(piece):
                    await writer.write(chunk)
            else:
                try:
                    await _send(piece, writer)
                except ExecutionError as error:
                    self.error = error
                    raise


def _chunks(piece: bytes) -> Iterator[memoryview]:
    view = memoryview(piece)
    for start in range(0, len(view), _CHUNK):
        yield view[start : start + _CHUNK]


async def _send(source: Source, writer: AbstractStreamWriter) -> None:
    """Send exactly the announced number of bytes."""
    sent = 0
    while sent < source.size:
        chunk = await source.read(sent, _CHUNK)
        await writer.write(chunk)
        sent += len(chunk)
