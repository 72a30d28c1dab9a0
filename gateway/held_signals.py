"""Handles signals during the start and the end of the process.

By default, a signal would kill a starting daemon, and PID 1 of a container would ignore it (signal(7)). Other commands
must end without a traceback during imports. This module runs first, so its imports are minimal.
"""

import os
import signal
from types import FrameType
from typing import Final

_HELD: Final = (signal.SIGHUP, signal.SIGTERM, signal.SIGINT)


class HeldSignal:
    """A signal handler that records its signal, for `came_early`."""

    def __init__(self) -> None:
        self.has_come = False

    def __call__(self, number: int, _frame: FrameType | None) -> None:
        """Record the signal, or exit if it is the second SIGTERM or SIGINT."""
        if self.has_come and number != signal.SIGHUP:
            # Imports could catch the exception of `sys.exit`. Shells report signal n as 128 + n.
            os._exit(128 + number)
        self.has_come = True


def hold_signals() -> None:
    """Record signals until other handlers are set. Ignored signals stay ignored in child processes (execve(2))."""
    for number in _HELD:
        signal.signal(number, HeldSignal())


def end_at_interrupt() -> None:
    """Let Ctrl-C end the process immediately, unless it is ignored, as in background jobs."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def raise_at_interrupt() -> None:
    """Undo `end_at_interrupt`."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def ignore_hang_ups() -> None:
    """Ignore SIGHUP, because the interpreter restores default handlers before it exits."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)


def came_early(handler: object) -> bool:
    """Whether the signal of a previous handler has arrived."""
    return isinstance(handler, HeldSignal) and handler.has_come
