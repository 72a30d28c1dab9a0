"""Holds signals that arrive before the process can handle them, or at its end.

Their default action would kill a starting daemon (signal(7)), and PID 1 of a container would never see them. Other
commands just end, without a KeyboardInterrupt traceback during imports. This module runs first, so it imports almost
nothing.
"""

import os
import signal
from types import FrameType
from typing import Final

_HELD: Final = (signal.SIGHUP, signal.SIGTERM, signal.SIGINT)


class HeldSignal:
    """A signal handler that remembers its signal. Retrieved with `signal.getsignal`."""

    def __init__(self) -> None:
        self.has_come = False

    def __call__(self, number: int, _frame: FrameType | None) -> None:
        """Remember the signal. Exit on a second SIGTERM or SIGINT."""
        if self.has_come and number != signal.SIGHUP:
            # Not `sys.exit`, whose exception an import could catch. Shells report signal n as 128 + n.
            os._exit(128 + number)
        self.has_come = True


def hold_signals() -> None:
    """Hold the signals until other handlers are set.

    SIG_IGN would be inherited by child processes (execve(2)).
    """
    for number in _HELD:
        signal.signal(number, HeldSignal())


def end_at_interrupt() -> None:
    """Let Ctrl-C end the process immediately, unless it is ignored, as in background jobs of a shell."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def raise_at_interrupt() -> None:
    """Undo `end_at_interrupt`: Ctrl-C raises KeyboardInterrupt again."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def ignore_hang_ups() -> None:
    """Ignore SIGHUP at the end, because the interpreter restores default handlers before it exits."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)


def came_early(handler: object) -> bool:
    """Whether the signal of this former handler has already arrived."""
    return isinstance(handler, HeldSignal) and handler.has_come
