"""A request body made of pieces: bytes as they are in memory, and files that are read while they are sent.

Nothing is copied into one piece, the length is known before the first byte goes out, and a body can be sent again.
"""

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Final

import aiohttp
import msgspec
from aiohttp.abc import AbstractStreamWriter
from aiohttp.payload import Payload
from yarl import URL

from gateway.errors import ExecutionError
from gateway.executors.files.regular_files import NotServedError, opened_regular
from gateway.executors.http.connection_pool import Answer, Pool
from gateway.json_types import Json
from gateway.threads import DaemonThreadPool

_CHUNK: Final = 2**20
"""Bytes that are read, or written, at a time."""
_READ_SECONDS: Final = 60.0
"""The longest wait for one chunk of a file: a disk may hang."""


class DiskFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file of this machine, as it was when the request was made."""

    path: str
    size: int
    modified_ns: int
    threads: DaemonThreadPool


class StreamedBody(msgspec.Struct, frozen=True, kw_only=True):
    """A body in pieces."""

    pieces: tuple[bytes | DiskFile, ...]
    description: Json
    """What it holds, without the bytes of files: for explanations."""
    boundary: bytes = b""
    """Text that stands between pieces and tells nothing."""

    @property
    def size(self) -> int:
        return sum(piece.size if isinstance(piece, DiskFile) else len(piece) for piece in self.pieces)

    @property
    def key(self) -> str:
        """Identifies what is sent: equal only for two bodies that say the same."""
        digest = hashlib.sha256()
        for piece in self.pieces:
            if isinstance(piece, DiskFile):
                # Size and time stand for the bytes, which would otherwise be read once more.
                said = repr((piece.path, piece.size, piece.modified_ns)).encode()
            else:
                said = piece.replace(self.boundary, b"") if self.boundary else piece
            # Each by its digest, of one length: no byte can move from one piece to the next unnoticed.
            digest.update(hashlib.sha256(said).digest())
        return digest.hexdigest()


def disk_file(path: str, *, threads: DaemonThreadPool) -> DiskFile:
    """Look at a file that is to be sent.

    Raises:
        ExecutionError: there is none that can be read.
    """
    try:
        with opened_regular(path) as descriptor:
            found = os.fstat(descriptor)
    except OSError as error:
        raise _unreadable(path, error) from error
    return DiskFile(path=path, size=found.st_size, modified_ns=found.st_mtime_ns, threads=threads)


@asynccontextmanager
async def streamed(
    pool: Pool,
    method: str,
    url: URL,
    *,
    headers: Sequence[tuple[str, str]],
    body: StreamedBody,
) -> AsyncIterator[Answer]:
    """Send a request whose body is written beside the reading of its answer, as aiohttp's own client does it.

    Raises:
        ExecutionError: a file cannot be read.
        aiohttp.ClientError: there is no answer.
    """
    data = _PiecesPayload(body)
    try:
        async with pool.exchange(method, url, headers=headers, body=data) as answer:
            yield answer
    except aiohttp.ClientError as error:
        # aiohttp reports a body that cannot be written as a connection that failed.
        if data.error is not None:
            raise data.error from error
        raise


class _PiecesPayload(Payload):
    """Writes a body to one connection."""

    def __init__(self, body: StreamedBody) -> None:
        super().__init__(body)
        # aiohttp sends Content-Length for a payload that has a size, and chunks otherwise.
        self._size = body.size
        self._pieces: Final = body.pieces
        self.error: ExecutionError | None = None
        """The reason why the body could not be written, if that was ours."""

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:  # noqa: ARG002 - aiohttp's interface
        raise TypeError("a body of files is no text")

    async def write(self, writer: AbstractStreamWriter) -> None:
        for piece in self._pieces:
            if isinstance(piece, DiskFile):
                try:
                    await _send(piece, writer)
                except ExecutionError as error:
                    self.error = error
                    raise
            else:
                for chunk in _chunks(piece):
                    await writer.write(chunk)


def _chunks(piece: bytes) -> Iterator[memoryview]:
    view = memoryview(piece)
    for start in range(0, len(view), _CHUNK):
        yield view[start : start + _CHUNK]


async def _send(file: DiskFile, writer: AbstractStreamWriter) -> None:
    """Send as many bytes as were promised."""
    loop, sent = asyncio.get_running_loop(), 0
    while sent < file.size:
        try:
            chunk = await file.threads.run(_read, file, sent, deadline=loop.time() + _READ_SECONDS)
        except TimeoutError as error:
            raise ExecutionError(f"{file.path} could not be read in time") from error
        await writer.write(chunk)
        sent += len(chunk)


def _read(file: DiskFile, offset: int) -> bytes:
    """Read a chunk, in a thread, that may outlive the call: so the file is opened for each.

    Raises:
        ExecutionError: it cannot be read, or is another file by now.
    """
    try:
        with opened_regular(file.path) as descriptor:
            found = os.fstat(descriptor)
            chunk = os.pread(descriptor, _CHUNK, offset)
    except OSError as error:
        raise _unreadable(file.path, error) from error
    if not chunk or (found.st_size, found.st_mtime_ns) != (file.size, file.modified_ns):
        raise ExecutionError(f"{file.path} was changed while it was sent")
    return chunk


def _unreadable(path: str, error: OSError) -> ExecutionError:
    why = "not a regular file" if isinstance(error, NotServedError) else error.strerror
    return ExecutionError(f"{path} cannot be read: {why}")
