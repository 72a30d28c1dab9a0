"""The daemon's ends of a child's pipes, and a buffer for its output. The event loop reads and writes them."""

import asyncio
import os
from collections.abc import Callable
from typing import IO, Final

_CHUNK: Final = 64 * 1024
"""Bytes for one read. A Linux pipe holds no more."""


class OutputPipe:
    """Passes on the output of a child, one chunk per turn of the loop, so that a flood does not delay other calls."""

    def __init__(self, descriptor: int, *, sink: Callable[[bytes], None], at_end: Callable[[], None]) -> None:
        """`close` closes the descriptor."""
        self._descriptor = descriptor
        self._sink = sink
        self._at_end = at_end
        self._loop: asyncio.AbstractEventLoop | None = None

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        # Only this end becomes non-blocking. The child's end blocks as programs expect.
        os.set_blocking(self._descriptor, False)
        loop.add_reader(self._descriptor, self._read)
        self._loop = loop

    def stop(self) -> None:
        """Stop reading, but keep the pipe open, so that a child that is being ended gets no SIGPIPE."""
        if self._loop is not None:
            self._loop.remove_reader(self._descriptor)
            self._loop = None

    def close(self) -> None:
        if self._descriptor >= 0:
            self.stop()
            os.close(self._descriptor)
            self._descriptor = -1

    def _read(self) -> None:
        try:
            chunk = os.read(self._descriptor, _CHUNK)
        except BlockingIOError:
            return
        except OSError:
            chunk = b""
        if chunk:
            self._sink(chunk)
        else:
            self.close()
            self._at_end()


class InputPipe:
    """Writes the input of a child. Ignores a child that closes its input early."""

    def __init__(self, pipe: IO[bytes], data: bytes) -> None:
        self._pipe = pipe
        self._rest = memoryview(data)
        self._loop: asyncio.AbstractEventLoop | None = None

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        os.set_blocking(self._pipe.fileno(), False)
        # Most inputs fit into the empty pipe and need no watching.
        self._write()
        if not self._pipe.closed:
            loop.add_writer(self._pipe.fileno(), self._write)
            self._loop = loop

    def close(self) -> None:
        if self._loop is not None:
            self._loop.remove_writer(self._pipe.fileno())
            self._loop = None
        self._pipe.close()

    def _write(self) -> None:
        try:
            self._rest = self._rest[os.write(self._pipe.fileno(), self._rest[:_CHUNK]) :]
        except BlockingIOError:
            return
        except OSError:  # the child has closed its end
            self._rest = self._rest[:0]
        if not self._rest:
            self.close()


class LastingInput:
    """The bounded input of a long-lived child. Joins all writes of one turn of the event loop."""

    def __init__(self, *, limit: int) -> None:
        """`limit`: the maximum number of buffered bytes."""
        self._limit: Final = limit
        self._waiting = bytearray()
        self._pipe: IO[bytes] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_watching = False
        self._is_ended = False

    def attach(self, pipe: IO[bytes]) -> None:
        """Write to this pipe, starting with the buffered bytes."""
        os.set_blocking(pipe.fileno(), False)
        self._pipe, self._loop = pipe, asyncio.get_running_loop()
        self._flush()

    def write(self, data: bytes) -> bool:
        """Buffer data. Return False if the buffer is full because the child does not read."""
        if len(self._waiting) + len(data) > self._limit:
            return False
        # Buffered data already has a pending flush.
        if not self._waiting and self._loop is not None:
            self._loop.call_soon(self._flush)
        self._waiting += data
        return True

    def close(self) -> None:
        """Close the input after the buffered data is written."""
        self._is_ended = True
        if not self._waiting:
            self._flush()

    def abandon(self) -> None:
        """Close at once."""
        self._waiting.clear()
        # Before closing: the descriptor's number can be reused at once.
        self._unwatch()
        if self._pipe is not None:
            self._pipe.close()
            self._pipe = None

    def _flush(self) -> None:
        if self._pipe is None:
            return
        try:
            while self._waiting:
                # Keep no reference to the view: a bytearray with a view cannot shrink (BufferError).
                written = os.write(self._pipe.fileno(), memoryview(self._waiting)[:_CHUNK])
                del self._waiting[:written]
        except BlockingIOError:
            self._watch()
            return
        except OSError:  # the child has closed its end
            self.abandon()
            return
        self._unwatch()
        if self._is_ended:
            self.abandon()

    def _watch(self) -> None:
        if not self._is_watching and self._loop is not None and self._pipe is not None:
            self._loop.add_writer(self._pipe.fileno(), self._flush)
            self._is_watching = True

    def _unwatch(self) -> None:
        if self._is_watching and self._loop is not None and self._pipe is not None:
            self._loop.remove_writer(self._pipe.fileno())
        self._is_watching = False


class BoundedBuffer:
    """Keeps the head and the tail of a stream, and drops the middle if the stream is longer than `limit` bytes.

    Uses at most one and a half times `limit` bytes of memory.
    """

    def __init__(self, limit: int) -> None:
        self._head = bytearray()
        self._tail = bytearray()
        self._head_limit = limit // 2
        self._tail_limit = limit - self._head_limit
        self._received = 0

    def feed(self, chunk: bytes) -> None:
        self._received += len(chunk)
        room = self._head_limit - len(self._head)
        if room > 0:
            self._head += chunk[:room]
            chunk = chunk[room:]
        self._tail += chunk
        # Trimming at twice the limit keeps many short writes cheap.
        if len(self._tail) > 2 * self._tail_limit:
            self._trim()

    @property
    def is_empty(self) -> bool:
        return not self._received

    @property
    def data(self) -> bytes:
        return b"".join(self.parts)

    @property
    def parts(self) -> tuple[bytes, bytes]:
        """The head and the tail."""
        self._trim()
        return bytes(self._head), bytes(self._tail)

    @property
    def omitted(self) -> int:
        """The number of bytes missing between the head and the tail."""
        return max(0, self._received - self._head_limit - self._tail_limit)

    def is_whole_within(self, size: int) -> bool:
        """Return whether at most `size` bytes were received and all of them are kept."""
        return self._received <= size and not self.omitted

    def end(self, size: int) -> bytes:
        """Return at most the last `size` bytes received."""
        self._trim()
        # If the middle is missing, head and tail joined would look like contiguous text.
        if len(self._tail) >= size or self.omitted:
            return bytes(self._tail[-size:])
        return bytes((self._head + self._tail)[-size:])

    def _trim(self) -> None:
        del self._tail[: max(0, len(self._tail) - self._tail_limit)]
