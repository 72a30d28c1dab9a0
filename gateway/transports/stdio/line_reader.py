"""Reads lines from a descriptor: a pipe, a socket, a terminal or a file.

The parent process can share the descriptor, so the descriptor stays blocking and is read only when readable. Files and
/dev/null are read without polling, because epoll does not support files and kqueue does not report the end of a file.
"""

import asyncio
import os
import select
import stat
from typing import Final

_CHUNK: Final = 64 * 1024
_MAX_BUFFERED: Final = 256 * 1024
"""The number of buffered bytes at which reading pauses."""


class LineReader:
    """Reads lines and removes their line endings, for a single consumer."""

    def __init__(self, descriptor: int, *, limit: int) -> None:
        self._descriptor: Final = descriptor
        self._limit: Final = limit
        self._buffer = bytearray()
        self._scanned = 0
        self._is_skipping = False
        self._has_ended = False
        self._is_watching = False
        self._is_always_readable = stat.S_ISREG(os.fstat(descriptor).st_mode)
        self._arrival: asyncio.Future[None] | None = None
        """Completes when more input arrives or the input ends."""

    async def next(self) -> bytes | None:
        """Return the next line, or None at the end of input. Truncate a line over the limit to `limit` + 1 bytes."""
        while (line := self._take()) is None:
            if self._has_ended:
                return self._last()
            if not self._is_watching:
                self._watch()
            if self._is_always_readable:
                # Reading a file never waits, so let other tasks run.
                await asyncio.sleep(0)
                self._read()
            else:
                self._arrival = asyncio.get_running_loop().create_future()
                await self._arrival
        return line

    @property
    def is_hung_up(self) -> bool:
        """Return whether the writer has disconnected, even if lines remain in the buffer."""
        poll = select.poll()
        poll.register(self._descriptor, 0)  # POLLHUP is always reported.
        return any(happened & select.POLLHUP for _, happened in poll.poll(0))

    def end(self) -> None:
        self._has_ended = True
        self._buffer.clear()
        self._scanned = 0
        self._unwatch()
        self._note_arrival()

    def _take(self) -> bytes | None:
        end = self._buffer.find(b"\n", self._scanned)
        if end < 0:
            self._scanned = len(self._buffer)
            if len(self._buffer) <= self._limit and not self._is_skipping:
                return None
            start = bytes(self._buffer[: self._limit + 1])
            self._buffer.clear()
            self._scanned = 0
            was_skipping, self._is_skipping = self._is_skipping, True
            return None if was_skipping else start
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        self._scanned = 0
        if self._is_skipping:
            self._is_skipping = False
            return self._take()
        return line[: self._limit + 1] if len(line) > self._limit else line.removesuffix(b"\r")

    def _last(self) -> bytes | None:
        line = bytes(self._buffer)
        self._buffer.clear()
        return line or None

    def _watch(self) -> None:
        if self._is_always_readable:
            return
        try:
            asyncio.get_running_loop().add_reader(self._descriptor, self._read)
        except OSError:  # /dev/null
            self._is_always_readable = True
        else:
            self._is_watching = True

    def _unwatch(self) -> None:
        if self._is_watching:
            asyncio.get_running_loop().remove_reader(self._descriptor)
            self._is_watching = False

    def _read(self) -> None:
        try:
            chunk = os.read(self._descriptor, _CHUNK)
        except BlockingIOError:
            return
        except OSError:  # The terminal was closed.
            chunk = b""
        if not chunk:
            self._has_ended = True
        self._buffer += chunk
        # Further input stays in the pipe and blocks its writer.
        if self._has_ended or len(self._buffer) > _MAX_BUFFERED:
            self._unwatch()
        self._note_arrival()

    def _note_arrival(self) -> None:
        if self._arrival is not None and not self._arrival.done():
            self._arrival.set_result(None)
