"""Writes lines to standard output without blocking the event loop when its reader is slow.

The descriptor stays blocking, because the parent process may share it. A line that surely fits is written at once; any
other is left to a thread, in order. A task that writes more than the reader takes waits, so memory stays bounded.

Why not the `BackgroundWriter` of the logs: that drops lines beyond its bound and always hands over to its thread. Here
a line is a message of the protocol, which must not be dropped, and most are written without a change of threads.
"""

import asyncio
import os
import select
import threading
from collections import deque
from contextlib import suppress
from typing import Final

from gateway.telemetry.background_writer import write_all
from gateway.transports.write_quota import EXEMPT_BYTES

_MAX_QUEUED_BYTES: Final = 1024 * 1024
MAX_WAITING_BYTES: Final = 64 * 2**20
STANDSTILL_SECONDS: Final = 2.0
"""The time in which a reader that is still there takes something."""


class LineWriter:
    """The queue, its thread, and the descriptor. A line is one write, as far as the system takes it at once."""

    def __init__(self, descriptor: int, *, max_waiting: int = MAX_WAITING_BYTES) -> None:
        """Write nothing yet; `max_waiting` is the number of bytes of large lines that may wait for room."""
        self._max_waiting: Final = max_waiting
        self._waiting_bytes = 0
        self._descriptor: Final = descriptor
        self._loop: Final = asyncio.get_running_loop()
        self._readiness: Final = select.poll()
        self._readiness.register(descriptor, select.POLLOUT)
        self._wake: Final = threading.Condition()
        self._queue: Final[deque[bytes]] = deque()
        self._queued_bytes = 0
        self._is_closing = False
        self._thread: threading.Thread | None = None
        self._has_room: Final = asyncio.Event()
        self._has_room.set()
        self.written = 0
        """Bytes that the reader took, or that the pipe did."""
        self.gone: Final = asyncio.Event()
        """Set once the reader is gone."""

    @property
    def has_room(self) -> bool:
        return self._has_room.is_set()

    async def wait_for_room(self) -> None:
        await self._has_room.wait()

    async def write(self, line: bytes) -> bool:
        """Write `line` and a line feed, once there is room; does nothing once the reader is gone.

        Returns:
            False if it was dropped: too many bytes wait, and the reader takes none. Small lines are never dropped.
        """
        size = len(line) if len(line) > EXEMPT_BYTES else 0
        self._waiting_bytes += size
        try:
            # Again, because others that waited may have filled the room first.
            while not self._has_room.is_set():
                if not size or self._waiting_bytes <= self._max_waiting:
                    await self._has_room.wait()
                elif await self._stands_still() and self._waiting_bytes > self._max_waiting:
                    return False
        finally:
            self._waiting_bytes -= size
        self._put(line)
        return True

    def write_now(self, line: bytes) -> bool:
        """Do as `write` does if there is room now; tell whether there is."""
        if not self._has_room.is_set():
            return False
        self._put(line)
        return True

    async def close(self, seconds: float) -> None:
        """Give the reader this long to take the queued lines, then drop the rest."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self._queued_bytes and not self.gone.is_set():
                    self._has_room.clear()
                    await self._has_room.wait()
        with self._wake:
            # The thread is not joined: it may be stuck in a write that nobody reads, and, as a daemon, holds no exit.
            self._is_closing = True
            self._wake.notify()
        self._mark_gone()

    async def _stands_still(self) -> bool:
        """Wait a while for room; tell whether the reader has taken nothing meanwhile."""
        written = self.written
        with suppress(TimeoutError):
            async with asyncio.timeout(STANDSTILL_SECONDS):
                await self._has_room.wait()
        return self.written == written and not self._has_room.is_set()

    def _put(self, line: bytes) -> None:
        if self.gone.is_set():
            return
        data = line + b"\n"  # the only copy; while there is no room, none is made
        if not self._queued_bytes:
            data = data[self._write_what_fits(data) :]
        if data and not self.gone.is_set():
            self._queue_for_thread(data)

    def _write_what_fits(self, data: bytes) -> int:
        """Return how many bytes were written. POSIX pipe(7): a ready pipe takes PIPE_BUF bytes without blocking."""
        if len(data) > select.PIPE_BUF:
            return 0
        try:
            size = os.write(self._descriptor, data) if self._readiness.poll(0) else 0
        except BlockingIOError:
            return 0
        except OSError:
            self._mark_gone()
            return 0
        self.written += size
        return size

    def _queue_for_thread(self, data: bytes) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._write_queued, name="stdout writer", daemon=True)
            self._thread.start()
        with self._wake:
            self._queue.append(data)
            self._wake.notify()
        # Only the event loop's thread changes this number; the other one reports by `call_soon_threadsafe`.
        self._queued_bytes += len(data)
        if self._queued_bytes > _MAX_QUEUED_BYTES:
            self._has_room.clear()

    def _write_queued(self) -> None:
        """Write the queue, in the thread."""
        while True:
            with self._wake:
                self._wake.wait_for(lambda: self._queue or self._is_closing)
                if self._is_closing:
                    return
                data = self._queue.popleft()
            is_written = write_all(self._descriptor, data)
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._note_written if is_written else self._note_gone, len(data))
            if not is_written:
                return

    def _note_written(self, size: int) -> None:
        self._queued_bytes -= size
        self.written += size
        if self._queued_bytes <= _MAX_QUEUED_BYTES // 2:
            self._has_room.set()

    def _note_gone(self, _size: int) -> None:
        self._mark_gone()

    def _mark_gone(self) -> None:
        self.gone.set()
        self._has_room.set()
