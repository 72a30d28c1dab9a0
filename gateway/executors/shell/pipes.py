"""The daemon's ends of a child's pipes: read and written by the event loop, never waited for."""

import asyncio
import os
from collections.abc import Callable
from typing import IO, Final

_CHUNK: Final = 64 * 1024
"""What is read at once; a Linux pipe holds no more."""


class OutputPipe:
    """Hands on what a child writes, one chunk in each turn of the loop, so that a flood starves nobody."""

    def __init__(self, pipe: IO[bytes], *, sink: Callable[[bytes], None], at_end: Callable[[], None]) -> None:
        self._pipe = pipe
        self._sink = sink
        self._at_end = at_end
        self._loop: asyncio.AbstractEventLoop | None = None

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        os.set_blocking(self._pipe.fileno(), False)
        loop.add_reader(self._pipe.fileno(), self._read)
        self._loop = loop

    def stop(self) -> None:
        """Read no more, but keep the pipe open: a child that writes while it is being ended is not told by a signal."""
        if self._loop is not None:
            self._loop.remove_reader(self._pipe.fileno())
            self._loop = None

    def close(self) -> None:
        self.stop()
        self._pipe.close()

    def _read(self) -> None:
        try:
            chunk = os.read(self._pipe.fileno(), _CHUNK)
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
