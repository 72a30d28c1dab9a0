"""Handles signals during the start and the end of the process.

Without a handler, SIGTERM kills a starting daemon, or is ignored if the daemon is PID 1 of a container (signal(7)).
Other commands must end without a traceback on Ctrl-C during imports. This module is loaded first, with few imports.
"""

import os
import signal
from types import FrameType
from typing import Final

_HELD: Final = (signal.SIGHUP, signal.SIGTERM, signal.SIGINT)


class HeldSignal:
    """A signal handler that records the arrival of the signal, for `came_early`."""

    def __init__(self) -> None:
        self.has_come = False

    def __call__(self, number: int, _frame: FrameType | None) -> None:
        """Record the signal, or exit if it is the second SIGTERM or SIGINT."""
        if self.has_come and number != signal.SIGHUP:
            # Imports could catch the exception of `sys.exit`. Shells report signal n as 128 + n.
            os._exit(128 + number)
        self.has_come = True


def hold_signals() -> None:
    """Record signals until the daemon sets its handlers. Child processes would inherit SIG_IGN (execve(2))."""
    for number in _HELD:
        signal.signal(number, HeldSignal())


def end_at_interrupt() -> None:
    """Make Ctrl-C end the process without a traceback, unless SIGINT is ignored, as in background jobs."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def raise_at_interrupt() -> None:
    """Make Ctrl-C raise KeyboardInterrupt again after `end_at_interrupt`."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def ignore_hang_ups() -> None:
    """Ignore SIGHUP, which would kill the process once the exiting interpreter has restored the default handlers."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)


def came_early(handler: object) -> bool:
    """Return whether `handler` is a HeldSignal whose signal has arrived."""
    return isinstance(handler, HeldSignal) and handler.has_come
