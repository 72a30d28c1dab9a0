"""Signals of the daemon: SIGINT and SIGTERM stop, SIGHUP reloads. A watchdog thread ends a process that hangs.

asyncio's signal handlers are callbacks of the event loop, which a plugin may block. So plain handlers are used. The
watchdog is a thread because a coroutine may ignore its cancellation, and a plugin may leave a thread that the
interpreter waits for at exit.
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
"""Time for a cancelled start to end."""


class ExitWatchdog:
    """Ends the process at a deadline."""

    def __init__(self, *, on_exit: Callable[[], None]) -> None:
        self._on_exit: Final = on_exit
        # Signal handlers need a reentrant `put` (queue.SimpleQueue).
        self._deadlines: Final[SimpleQueue[tuple[float, int]]] = SimpleQueue()

    def start(self) -> None:
        threading.Thread(target=self._wait, name="exit watchdog", daemon=True).start()

    def arm(self, *, seconds: float, exit_code: int = 0) -> None:
        """End the process after this time, unless an earlier deadline is set."""
        self._deadlines.put((time.monotonic() + seconds, exit_code))

    def exit_now(self, exit_code: int) -> None:
        """End the process at once, without clean-up."""
        self._on_exit()
        os._exit(exit_code)

    def _wait(self) -> None:
        first = self._deadlines.get()
        while (remaining := first[0] - time.monotonic()) > 0:
            with suppress(Empty):
                first = min(first, self._deadlines.get(timeout=remaining))
        # The hanging code may hold the locks of the log.
        os.write(2, b"mcp-gateway: something in a plugin does not end; leaving without it\n")
        self.exit_now(first[1])


def on_stop_signals(
    stop: Callable[[], None],
    *,
    watchdog: ExitWatchdog,
    seconds: float,
    signals: Sequence[signal.Signals] = (signal.SIGINT, signal.SIGTERM),
) -> None:
    """On the first of these signals, call `stop` and arm the watchdog. On the second, end the process.

    The handlers are never removed.
    """
    loop, was_signalled = asyncio.get_running_loop(), False

    def handle(number: int, _frame: FrameType | None) -> None:
        nonlocal was_signalled
        if was_signalled:
            # The event loop may hang. Shells report a signal as 128 + its number.
            watchdog.exit_now(128 + number)
        was_signalled = True
        watchdog.arm(seconds=seconds)
        if not loop.is_closed():
            loop.call_soon_threadsafe(stop)

    # signal.signal() raises ValueError in any other thread.
    if threading.current_thread() is threading.main_thread():
        for number in signals:
            if came_early(signal.signal(number, handle)):
                handle(number, None)


@contextmanager
def cancelled_by_signals(*, on_exit: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Let SIGINT and SIGTERM cancel the start of the daemon, until the daemon sets its own handlers.

    The cancellation is suppressed because it is not a failure. `on_exit` is called from any thread just before an exit
    without clean-up.
    """
    task, was_cancelled = asyncio.current_task(), False

    def cancel() -> None:
        nonlocal was_cancelled
        was_cancelled = task is not None and task.cancel()

    watchdog = ExitWatchdog(on_exit=on_exit)
    watchdog.start()
    on_stop_signals(cancel, watchdog=watchdog, seconds=_START_SECONDS)
    try:
        yield
    except asyncio.CancelledError:
        if not was_cancelled:
            raise


@contextmanager
def on_sighup(reload: Callable[[], object]) -> Iterator[None]:
    """Call `reload` on each SIGHUP while the context lasts, and for an earlier SIGHUP that was held.

    asyncio's handlers restore the default action when the loop closes, which would kill a draining daemon.
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
        # None: the previous handler was not installed from Python, and cannot be restored (signal.signal).
        signal.signal(signal.SIGHUP, signal.SIG_DFL if before is None else before)
