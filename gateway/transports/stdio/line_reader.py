"""Reads lines of any length up to a limit from a descriptor: a pipe, a socket, a terminal or a file.

The descriptor stays blocking, because the parent process may share it: it is read when it is readable, and then never
blocks. Files and /dev/null are always readable, which is why epoll does not take them.
"""

import asyncio
import os
import select
from enum import Enum, auto
from typing import Final

_CHUNK: Final = 64 * 1024
_ENOUGH: Final = 256 * 1024
"""Bytes read ahead of the one who takes the lines."""


class LineMark(Enum):
    """A result that is no line."""

    TOO_LONG = auto()
    """It was over the limit; the rest of it is skipped."""
    END = auto()
    """There are no more."""


class LineReader:
    """Lines without their ends. One reader at a time."""

    def __init__(self, descriptor: int, *, limit: int) -> None:
        self._descriptor: Final = descriptor
        self._limit: Final = limit
        self._buffer = bytearray()
        self._scanned = 0
        self._is_skipping = False
        self._has_ended = False
        self._is_watching = False
        self._is_always_readable = False
        self._arrival: asyncio.Future[None] | None = None
        """Done once there is more, or the end; None before anybody waited."""

    async def next(self) -> bytes | LineMark:
        while (line := self._take()) is None:
            if self._has_ended:
                return self._last()
            if not self._is_watching:
                self._watch()
            if self._is_always_readable:
                # A file never keeps anybody waiting: without this, nothing else would have a turn.
                await asyncio.sleep(0)
                self._read()
            else:
                self._arrival = asyncio.get_running_loop().create_future()
                await self._arrival
        return line

    @property
    def is_hung_up(self) -> bool:
        """Whether the writer has gone, although there may be lines left to take."""
        poll = select.poll()
        poll.register(self._descriptor, 0)  # a hang-up is always reported
        return any(happened & select.POLLHUP for _, happened in poll.poll(0))

    def end(self) -> None:
        """Read no further: the next line is the end."""
        self._has_ended = True
        self._buffer.clear()
        self._scanned = 0
        self._unwatch()
        self._note_arrival()

    def _take(self) -> bytes | LineMark | None:
        """The next line of what has been read; None if there is no whole one."""
        end = self._buffer.find(b"\n", self._scanned)
        if end < 0:
            self._scanned = len(self._buffer)
            if len(self._buffer) <= self._limit and not self._is_skipping:
                return None
            self._buffer.clear()
            self._scanned = 0
            was_skipping, self._is_skipping = self._is_skipping, True
            return None if was_skipping else LineMark.TOO_LONG
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        self._scanned = 0
        if self._is_skipping:
            self._is_skipping = False
            return self._take()
        return LineMark.TOO_LONG if len(line) > self._limit else line.removesuffix(b"\r")

    def _last(self) -> bytes | LineMark:
        """Return what came after the last line end, then the end."""
        line = bytes(self._buffer)
        self._buffer.clear()
        return line or LineMark.END

    def _watch(self) -> None:
        if self._is_always_readable:
            return
        try:
            asyncio.get_running_loop().add_reader(self._descriptor, self._read)
        except OSError:  # EPERM: epoll takes neither files nor /dev/null
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
        except OSError:  # a terminal that was closed
            chunk = b""
        if not chunk:
            self._has_ended = True
        self._buffer += chunk
        # What more there is stays in the pipe until somebody takes lines, and holds its writer up.
        if self._has_ended or len(self._buffer) > _ENOUGH:
            self._unwatch()
        self._note_arrival()

    def _note_arrival(self) -> None:
        if self._arrival is not None and not self._arrival.done():
            self._arrival.set_result(None)
