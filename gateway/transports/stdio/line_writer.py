"""Writes lines to standard output without blocking the event loop.

The parent process can share the descriptor, so the descriptor stays blocking. Lines that fit into the pipe are written
at once. A thread writes all other lines in order. Callers wait while the thread's queue is full, to limit memory use.

Unlike `BackgroundWriter`, which is for logs, this writer drops a line only if the client has stopped reading.
"""

import asyncio
import os
import select
import threading
from collections import deque
from contextlib import suppress
from typing import Final

from gateway.telemetry.background_writer import write_all
from gateway.transports.quota import EXEMPT_BYTES

_MAX_QUEUED_BYTES: Final = 1024 * 1024
MAX_WAITING_BYTES: Final = 64 * 2**20
STANDSTILL_SECONDS: Final = 2.0
"""A reader that reads nothing for this long is considered stuck."""


class LineWriter:
    def __init__(self, descriptor: int, *, max_waiting: int = MAX_WAITING_BYTES) -> None:
        """`max_waiting` limits the total size of large lines that wait to be written, in bytes."""
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
        self.gone: Final = asyncio.Event()

    @property
    def has_capacity(self) -> bool:
        return self._has_room.is_set()

    async def wait_for_room(self) -> None:
        await self._has_room.wait()

    async def write(self, line: bytes) -> bool:
        """Write a line when there is capacity. Do nothing if the reader has disconnected.

        Returns:
            False if the line was dropped because too many bytes wait and the reader reads nothing. Small lines are
            never dropped.
        """
        size = len(line) if len(line) > EXEMPT_BYTES else 0
        self._waiting_bytes += size
        try:
            # Other waiting tasks can use the capacity first.
            while not self._has_room.is_set():
                if not size or self._waiting_bytes <= self._max_waiting:
                    await self._has_room.wait()
                elif await self._is_stalled() and self._waiting_bytes > self._max_waiting:
                    return False
        finally:
            self._waiting_bytes -= size
        self._put(line)
        return True

    async def close(self, seconds: float) -> None:
        """Wait up to `seconds` for the queued lines to be written, then drop the remaining lines."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self._queued_bytes and not self.gone.is_set():
                    self._has_room.clear()
                    await self._has_room.wait()
        with self._wake:
            # Do not join the daemon thread, because its write can block forever.
            self._is_closing = True
            self._wake.notify()
        self._mark_gone()

    async def _is_stalled(self) -> bool:
        """Wait for capacity in the pipe. Return True if the reader has read nothing since the wait began."""
        written = self.written
        with suppress(TimeoutError):
            async with asyncio.timeout(STANDSTILL_SECONDS):
                await self._has_room.wait()
        return self.written == written and not self._has_room.is_set()

    def _put(self, line: bytes) -> None:
        if self.gone.is_set():
            return
        data = line + b"\n"  # The only copy.
        if not self._queued_bytes:
            data = data[self._write_what_fits(data) :]
        if data and not self.gone.is_set():
            self._queue_for_thread(data)

    def _write_what_fits(self, data: bytes) -> int:
        """Write up to PIPE_BUF bytes, because such a write does not block (pipe(7)). Return the number written."""
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
        # Only the event loop's thread changes this number. The writer thread uses `call_soon_threadsafe`.
        self._queued_bytes += len(data)
        if self._queued_bytes > _MAX_QUEUED_BYTES:
            self._has_room.clear()

    def _write_queued(self) -> None:
        while True:
            with self._wake:
                self._wake.wait_for(lambda: self._queue or self._is_closing)
                if self._is_closing:
                    return
                data = self._queue.popleft()
            is_written = write_all(self._descriptor, data)
            with suppress(RuntimeError):  # The loop is closed.
                self._loop.call_soon_threadsafe(self._note_written if is_written else self._mark_gone, len(data))
            if not is_written:
                return

    def _note_written(self, size: int) -> None:
        self._queued_bytes -= size
        self.written += size
        if self._queued_bytes <= _MAX_QUEUED_BYTES // 2:
            self._has_room.set()

    def _mark_gone(self, _size: int = 0) -> None:
        self.gone.set()
        self._has_room.set()
