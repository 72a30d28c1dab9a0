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
from types import FrameType, TracebackType
from typing import Final, Self

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
        os.write(2, b"mcp-gateway: something in a plugin does not end; leaving without it\n")
        self.exit_now(first[1])


class StopSignals:
    """Handlers of SIGINT and SIGTERM, or others: the first signal asks to stop, the second ends the process."""

    def __init__(
        self,
        *,
        on_stop: Callable[[], None],
        watchdog: ExitWatchdog,
        seconds: float,
        signals: Sequence[signal.Signals] = (signal.SIGINT, signal.SIGTERM),
    ) -> None:
        """Set nothing yet; the watchdog is armed with `seconds` at the first signal."""
        self._seconds: Final = seconds
        self._signals: Final = signals
        self._on_stop: Final = on_stop
        self._watchdog: Final = watchdog
        self._was_signalled = False
        self._loop: asyncio.AbstractEventLoop | None = None

    def __enter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        if threading.current_thread() is threading.main_thread():
            for number in self._signals:
                if came_early(signal.signal(number, self._handle)):
                    self._handle(number, None)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Keep the handlers: until the process has ended, a second signal must end it."""

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        if self._was_signalled:
            self._watchdog.exit_now(128 + number)
        self._was_signalled = True
        self._watchdog.arm(seconds=self._seconds)
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._on_stop)


class StartSignals:
    """Handlers of SIGINT and SIGTERM that cancel a start, until `StopSignals` sets its own.

    The context suppresses the cancellation: a daemon that was asked to stop has not failed.
    """

    def __init__(self) -> None:
        self._was_cancelled = False

    def __enter__(self) -> Self:
        task = asyncio.current_task()

        def cancel() -> None:
            self._was_cancelled = task is not None and task.cancel()

        watchdog = ExitWatchdog(on_exit=lambda: None)
        watchdog.start()
        StopSignals(on_stop=cancel, watchdog=watchdog, seconds=_START_SECONDS).__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        return self._was_cancelled and isinstance(error, asyncio.CancelledError)


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
        signal.signal(signal.SIGHUP, signal.SIG_DFL if before is None else before)
