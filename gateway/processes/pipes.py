"""The daemon's ends of a child's pipes: read and written by the event loop, never waited for."""

import asyncio
import os
from collections.abc import Callable
from typing import IO, Final

_CHUNK: Final = 64 * 1024
"""Bytes that are read at once; a Linux pipe holds no more."""


class OutputPipe:
    """Passes on what a child writes, one chunk in each turn of the loop, so that a flood delays no other call."""

    def __init__(self, descriptor: int, *, sink: Callable[[bytes], None], at_end: Callable[[], None]) -> None:
        """Own the descriptor, which `close` closes."""
        self._descriptor = descriptor
        self._sink = sink
        self._at_end = at_end
        self._loop: asyncio.AbstractEventLoop | None = None

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        # Of this end alone: the child's is an open file of its own, and blocks as programs expect.
        os.set_blocking(self._descriptor, False)
        loop.add_reader(self._descriptor, self._read)
        self._loop = loop

    def stop(self) -> None:
        """Read no more, but keep the pipe open: a child that writes while it is being ended gets no SIGPIPE."""
        if self._loop is not None:
            self._loop.remove_reader(self._descriptor)
            self._loop = None

    def close(self) -> None:
        if self._descriptor >= 0:
            self.stop()
            os.close(self._descriptor)
            self._descriptor = -1  # the number may be another file's from now on

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
    """Feeds a child what it is to read. A child that closes early, or never reads, is let be."""

    def __init__(self, pipe: IO[bytes], data: bytes) -> None:
        self._pipe = pipe
        self._rest = memoryview(data)
        self._loop: asyncio.AbstractEventLoop | None = None

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        os.set_blocking(self._pipe.fileno(), False)
        # Most inputs fit into the empty pipe: those are never watched by the loop.
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
    """The input of a child for as long as it lives: written piece by piece, never waited for, and bounded.

    All that comes in one turn of the event loop goes out in one write.
    """

    def __init__(self, *, limit: int) -> None:
        """`limit`: the most bytes that may wait for the child."""
        self._limit: Final = limit
        self._waiting = bytearray()
        self._pipe: IO[bytes] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_watching = False
        self._is_ended = False

    def attach(self, pipe: IO[bytes]) -> None:
        """Write to this pipe from now on, what waits already included."""
        os.set_blocking(pipe.fileno(), False)
        self._pipe, self._loop = pipe, asyncio.get_running_loop()
        self._flush()

    def write(self, data: bytes) -> bool:
        """Write; False if the child does not read, and too much waits for it. What it closed takes no more."""
        if len(self._waiting) + len(data) > self._limit:
            return False
        # What waits already has a flush ahead: in this turn, when the child reads, or when there is a pipe.
        if not self._waiting and self._loop is not None:
            self._loop.call_soon(self._flush)
        self._waiting += data
        return True

    def close(self) -> None:
        """End the child's input, once it has read what waits."""
        self._is_ended = True
        if not self._waiting:
            self._flush()

    def abandon(self) -> None:
        """Close at once."""
        self._waiting.clear()
        # Before the pipe is closed: the number may be another file's at once, which the loop would then watch.
        self._unwatch()
        if self._pipe is not None:
            self._pipe.close()
            self._pipe = None

    def _flush(self) -> None:
        if self._pipe is None:
            return
        try:
            while self._waiting:
                # The view is not kept in a variable: a bytearray with a view on it cannot shrink (BufferError).
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
