"""Handles signals, and ends the process if it hangs.

Plain signal handlers are used because a plugin that blocks the event loop would delay asyncio's handlers. The watchdog
is a thread because plugins may ignore cancellation, or leave threads that delay the interpreter's exit.
"""

import asyncio
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from queue import Empty, SimpleQueue
from types import FrameType
from typing import Final

from gateway.held_signals import came_early

_START_SECONDS: Final = 10.0


class ExitWatchdog:
    def __init__(self, *, on_exit: Callable[[], None] = lambda: None) -> None:
        self._on_exit: Final = on_exit
        # Use `SimpleQueue`, because signal handlers need a reentrant `put`.
        self._deadlines: Final[SimpleQueue[tuple[float, int]]] = SimpleQueue()

    def start(self) -> None:
        threading.Thread(target=self._wait, name="exit watchdog", daemon=True).start()

    def arm(self, *, seconds: float, exit_code: int = 0) -> None:
        """End the process with `exit_code` after `seconds`. The earliest deadline of all calls applies."""
        self._deadlines.put((time.monotonic() + seconds, exit_code))

    def exit_now(self, exit_code: int) -> None:
        self._on_exit()
        os._exit(exit_code)

    def _wait(self) -> None:
        first = self._deadlines.get()
        while (remaining := first[0] - time.monotonic()) > 0:
            with suppress(Empty):
                first = min(first, self._deadlines.get(timeout=remaining))
        # Write to stderr directly, because the hanging code can hold the logger's locks.
        os.write(2, b"mcp-gateway: a plugin did not stop in time; exiting without it\n")
        self.exit_now(first[1])


def on_stop_signals(
    stop: Callable[[], None],
    *,
    watchdog: ExitWatchdog,
    seconds: float,
    signals: Sequence[signal.Signals] = (signal.SIGINT, signal.SIGTERM),
) -> None:
    """Call `stop` and arm the watchdog on the first signal. End the process on the second signal."""
    loop, was_signalled = asyncio.get_running_loop(), False

    def handle(number: int, _frame: FrameType | None) -> None:
        nonlocal was_signalled
        if was_signalled:
            # Shells report a signal as 128 plus its number.
            watchdog.exit_now(128 + number)
        was_signalled = True
        watchdog.arm(seconds=seconds)
        if not loop.is_closed():
            loop.call_soon_threadsafe(stop)

    # Other threads cannot set signal handlers.
    if threading.current_thread() is threading.main_thread():
        for number in signals:
            if came_early(signal.signal(number, handle)):
                handle(number, None)


@contextmanager
def cancelled_by_signals() -> Iterator[None]:
    """Cancel the current task on SIGINT and SIGTERM, and suppress the resulting CancelledError."""
    task, was_cancelled = asyncio.current_task(), False

    def cancel() -> None:
        nonlocal was_cancelled
        was_cancelled = task is not None and task.cancel()

    watchdog = ExitWatchdog()
    watchdog.start()
    on_stop_signals(cancel, watchdog=watchdog, seconds=_START_SECONDS)
    try:
        yield
    except asyncio.CancelledError:
        if not was_cancelled:
            raise


@contextmanager
def on_sighup(reload: Callable[[], object]) -> Iterator[None]:
    """Call `reload` on each SIGHUP, including a SIGHUP that arrived before this call.

    An asyncio handler would end with the event loop, and a later SIGHUP would kill the draining daemon.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()

    def handle(_number: int, _frame: object) -> None:
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(reload)

    before = signal.signal(signal.SIGHUP, handle)
    if came_early(before):
        reload()
    try:
        yield
    finally:
        # A previous handler that was not installed from Python (None) cannot be restored.
        signal.signal(signal.SIGHUP, signal.SIG_DFL if before is None else before)
