"""Write lines to a descriptor whose reader may be slow, without ever blocking the event loop.

The descriptor stays blocking, because whoever started us may share it. A line that surely fits goes out at once; any
other is left with a thread, in order. Who writes more than the reader takes waits, so memory stays bounded.
"""

import asyncio
import os
import select
import threading
from collections import deque
from contextlib import suppress
from typing import Final

_ENOUGH: Final = 1024 * 1024
"""Bytes that may wait for the reader."""


class LineWriter:
    """Each line is one write, as far as the system lets it be."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor: Final = descriptor
        self._loop: Final = asyncio.get_running_loop()
        self._readiness: Final = select.poll()
        self._readiness.register(descriptor, select.POLLOUT)
        self._wake: Final = threading.Condition()
        self._waiting: Final[deque[bytes]] = deque()
        self._waiting_bytes = 0
        self._is_closing = False
        self._thread: threading.Thread | None = None
        self._has_room: Final = asyncio.Event()
        self._has_room.set()
        self.written = 0
        """Bytes that the reader took, or that at least fit on the way to it."""
        self.gone: Final = asyncio.Event()
        """Set once nobody reads any more."""

    @property
    def has_room(self) -> bool:
        return self._has_room.is_set()

    async def wait_for_room(self) -> None:
        await self._has_room.wait()

    async def write(self, line: bytes) -> None:
        """Write `line` and its end; dropped silently once nobody reads."""
        if self.gone.is_set():
            return
        data = line + b"\n"
        if not self._waiting_bytes:
            data = data[self._write_what_fits(data) :]
        if data and not self.gone.is_set():
            self._leave_with_thread(data)
            await self._has_room.wait()

    async def close(self, seconds: float) -> None:
        """Give the reader this long to take what is waiting, then drop the rest."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self._waiting_bytes and not self.gone.is_set():
                    self._has_room.clear()
                    await self._has_room.wait()
        with self._wake:
            self._is_closing = True
            self._wake.notify()
        self._mark_gone()

    def _write_what_fits(self, data: bytes) -> int:
        """POSIX pipe(7): what is ready takes PIPE_BUF bytes without blocking."""
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

    def _leave_with_thread(self, data: bytes) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._pass_on, name="stdout writer", daemon=True)
            self._thread.start()
        with self._wake:
            self._waiting.append(data)
            self._wake.notify()
        self._waiting_bytes += len(data)
        if self._waiting_bytes > _ENOUGH:
            self._has_room.clear()

    def _pass_on(self) -> None:
        """The thread."""
        while True:
            with self._wake:
                self._wake.wait_for(lambda: self._waiting or self._is_closing)
                if self._is_closing:
                    return
                data = self._waiting.popleft()
            is_written = _write_all(self._descriptor, data)
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                self._loop.call_soon_threadsafe(self._note_written if is_written else self._note_gone, len(data))
            if not is_written:
                return

    def _note_written(self, size: int) -> None:
        self._waiting_bytes -= size
        self.written += size
        if self._waiting_bytes <= _ENOUGH // 2:
            self._has_room.set()

    def _note_gone(self, _size: int) -> None:
        self._mark_gone()

    def _mark_gone(self) -> None:
        self.gone.set()
        self._has_room.set()


def _write_all(descriptor: int, data: bytes) -> bool:
    """Whether somebody took it."""
    while data:
        try:
            data = data[os.write(descriptor, data) :]
        except BlockingIOError:  # whoever shares the descriptor made it non-blocking
            select.select([], [descriptor], [])
        except OSError:
            return False
    return True
