"""Signals of the daemon: SIGINT and SIGTERM ask it to stop, SIGHUP to reload; a watchdog ends what does not end.

Why plain signal handlers: asyncio's own are callbacks of the loop, and a plugin that blocks the loop would block them
too. Why a thread at the end: a coroutine may swallow its cancellation for ever, and a plugin may leave a thread that
the interpreter waits for; neither may hold the exit.
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
"""Seconds that a cancelled start may take to end."""


class ExitWatchdog:
    """Ends the process if it has not ended by itself at a deadline."""

    def __init__(self, *, on_exit: Callable[[], None]) -> None:
        self._on_exit: Final = on_exit
        # The one queue whose `put` is reentrant, as signal handlers need it (queue.SimpleQueue).
        self._deadlines: Final[SimpleQueue[tuple[float, int]]] = SimpleQueue()

    def start(self) -> None:
        threading.Thread(target=self._wait, name="exit watchdog", daemon=True).start()

    def arm(self, *, seconds: float, exit_code: int = 0) -> None:
        """End the process after this time, or at an earlier deadline that was set before."""
        self._deadlines.put((time.monotonic() + seconds, exit_code))

    def exit_now(self, exit_code: int) -> None:
        """End the process at once, without cleaning up."""
        self._on_exit()
        os._exit(exit_code)

    def _wait(self) -> None:
        first = self._deadlines.get()
        while (remaining := first[0] - time.monotonic()) > 0:
            with suppress(Empty):
                first = min(first, self._deadlines.get(timeout=remaining))
        # Not by the log: what hangs may hold its locks.
        os.write(2, b"mcp-gateway: something in a plugin does not end; leaving without it\n")
        self.exit_now(first[1])


def on_stop_signals(
    stop: Callable[[], None],
    *,
    watchdog: ExitWatchdog,
    seconds: float,
    signals: Sequence[signal.Signals] = (signal.SIGINT, signal.SIGTERM),
) -> None:
    """Call `stop` at the first of these signals, and arm the watchdog with `seconds`; the second ends the process.

    The handlers stay until the process has ended: a second signal must end it.
    """
    loop, was_signalled = asyncio.get_running_loop(), False

    def handle(number: int, _frame: FrameType | None) -> None:
        nonlocal was_signalled
        if was_signalled:
            # As a shell reports the death by a signal. In the handler itself: the loop may be what hangs.
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
    """Let SIGINT and SIGTERM cancel a start, until the daemon sets handlers of its own.

    The cancellation is suppressed: a daemon that was asked to stop has not failed. `on_exit` is called from any thread
    just before the process ends without cleaning up.
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
    """Call `reload` on each SIGHUP while the context lasts, and for one that was held before it.

    With asyncio's own handler, closing the loop would restore the default action, which kills a draining daemon.
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
        # None: the handler before was not installed from Python, and cannot be put back (signal.signal).
        signal.signal(signal.SIGHUP, signal.SIG_DFL if before is None else before)
