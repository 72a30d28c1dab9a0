"""Reads and writes the pipes of a child process on the event loop, and buffers its output."""

import asyncio
import os
from collections.abc import Callable
from typing import IO, Final

_CHUNK: Final = 64 * 1024
"""The maximum number of bytes per read or write: the capacity of a Linux pipe."""


class OutputPipe:
    """Passes a child's output to `sink`.

    Reads one chunk per iteration of the event loop, so that a large output does not delay other calls.
    """

    def __init__(self, descriptor: int, *, sink: Callable[[bytes], None], at_end: Callable[[], None]) -> None:
        self._descriptor = descriptor
        self._sink = sink
        self._at_end = at_end
        self._loop: Final = asyncio.get_running_loop()

    def start(self) -> None:
        # The child's end stays blocking, as programs expect.
        os.set_blocking(self._descriptor, False)
        self._loop.add_reader(self._descriptor, self._read)

    def stop(self) -> None:
        """Stop reading but keep the pipe open, so that the child gets no SIGPIPE while the daemon ends the child."""
        if self._descriptor >= 0:
            self._loop.remove_reader(self._descriptor)

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


class InputBuffer:
    """Buffers input for a child process, and writes one chunk per iteration of the event loop.

    If the child closes its input, the rest is discarded.
    """

    def __init__(self, *, limit: int) -> None:
        self._limit: Final = limit
        self._waiting = bytearray()
        self._pipe: IO[bytes] | None = None
        self._loop: Final = asyncio.get_running_loop()
        self._is_ended = False

    def attach(self, pipe: IO[bytes]) -> None:
        os.set_blocking(pipe.fileno(), False)
        self._pipe = pipe
        self._continue()

    def write(self, data: bytes) -> bool:
        """Add data to the buffer. Return False if the data does not fit because the child does not read."""
        if len(self._waiting) + len(data) > self._limit:
            return False
        self._waiting += data
        self._continue()
        return True

    def close(self) -> None:
        """Close the pipe after all data in the buffer is written."""
        self._is_ended = True
        self._continue()

    def abandon(self) -> None:
        """Discard the buffer and close the pipe."""
        self._waiting.clear()
        if self._pipe is not None:
            # Remove the writer first: the descriptor number can be reused after the close.
            self._loop.remove_writer(self._pipe.fileno())
            self._pipe.close()
            self._pipe = None

    def _continue(self) -> None:
        if self._pipe is None:
            return
        if self._waiting:
            self._loop.add_writer(self._pipe.fileno(), self._flush, self._pipe.fileno())
        elif self._is_ended:
            self.abandon()
        else:
            self._loop.remove_writer(self._pipe.fileno())

    def _flush(self, descriptor: int) -> None:
        try:
            # Keep no reference to the view: a bytearray cannot shrink while a view exists (BufferError).
            written = os.write(descriptor, memoryview(self._waiting)[:_CHUNK])
            del self._waiting[:written]
        except BlockingIOError:
            return
        except OSError:  # the child has closed its end
            self.abandon()
        self._continue()


class BoundedBuffer:
    """Keeps up to `limit` bytes of a stream: half from the start, and half from the end of the stream.

    The buffer uses at most one and a half times `limit` bytes of memory.
    """

    def __init__(self, limit: int) -> None:
        self._head = bytearray()
        self._tail = bytearray()
        self._head_limit = limit // 2
        self._tail_limit = limit - self._head_limit
        self.received = 0
        """The number of bytes of the stream so far."""

    def feed(self, chunk: bytes) -> None:
        self.received += len(chunk)
        room = self._head_limit - len(self._head)
        if room > 0:
            self._head += chunk[:room]
            chunk = chunk[room:]
        self._tail += chunk
        # Trim only at twice the limit, so that many short writes stay cheap.
        if len(self._tail) > 2 * self._tail_limit:
            self._trim()

    @property
    def data(self) -> bytes:
        self._trim()
        return bytes(self._head + self._tail)

    @property
    def omitted(self) -> int:
        """The number of bytes dropped between the head and the tail."""
        return max(0, self.received - self._head_limit - self._tail_limit)

    def end(self, size: int) -> bytes:
        self._trim()
        # Do not join head and tail if bytes are missing between them: the text would look contiguous.
        if len(self._tail) >= size or self.omitted:
            return bytes(self._tail[-size:])
        return bytes((self._head + self._tail)[-size:])

    def _trim(self) -> None:
        del self._tail[: max(0, len(self._tail) - self._tail_limit)]
