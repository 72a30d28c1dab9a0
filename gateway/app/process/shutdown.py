"""How the process is asked to stop, and how it leaves even if something in it never does.

Why plain signal handlers: asyncio's own are callbacks of the loop, and a plugin that blocks the loop would block them
too. Why a thread at the end: a coroutine may swallow its cancellation for ever, and a plugin may leave a thread that
the interpreter waits for; neither may hold the exit.
"""

import asyncio
import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from types import FrameType, TracebackType
from typing import Final, Self

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


class LastResort:
    """Ends the process at a time by which it should have ended by itself."""

    def __init__(self, *, on_leave: Callable[[], None]) -> None:
        self._on_leave: Final = on_leave
        # The one queue whose `put` may interrupt itself, as a signal handler does.
        self._deadlines: Final[SimpleQueue[tuple[float, int]]] = SimpleQueue()

    def start(self) -> None:
        threading.Thread(target=self._wait, name="last resort", daemon=True).start()

    def arm(self, *, seconds: float, exit_code: int = 0) -> None:
        """Leave after this time, or earlier if it was armed so before."""
        self._deadlines.put((time.monotonic() + seconds, exit_code))

    def leave(self, exit_code: int) -> None:
        """End the process now."""
        self._on_leave()
        os._exit(exit_code)

    def _wait(self) -> None:
        first = self._deadlines.get()
        while (remaining := first[0] - time.monotonic()) > 0:
            with suppress(Empty):
                first = min(first, self._deadlines.get(timeout=remaining))
        os.write(2, b"mcp-gateway: something in a plugin does not end; leaving without it\n")
        self.leave(first[1])


class StopSignals:
    """Once entered, SIGINT and SIGTERM ask to stop, and a second one leaves at once."""

    def __init__(self, *, on_stop: Callable[[], None], last_resort: LastResort, seconds: float) -> None:
        """Do nothing yet; the last resort gets so many seconds from the first signal on."""
        self._seconds: Final = seconds
        self._on_stop: Final = on_stop
        self._last_resort: Final = last_resort
        self._was_asked = False
        self._loop: asyncio.AbstractEventLoop | None = None

    def __enter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        if threading.current_thread() is threading.main_thread():
            for number in _SIGNALS:
                signal.signal(number, self._handle)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Keep them: until the process is gone, a second signal must find its way."""

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        if self._was_asked:
            self._last_resort.leave(128 + number)
        self._was_asked = True
        self._last_resort.arm(seconds=self._seconds)
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._on_stop)
