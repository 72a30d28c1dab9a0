"""Signals that reach a process while it cannot act on them yet: from the first line of the program to its last one.

Their default action would kill a daemon half-way (signal(7)), and PID 1 of a container would never learn that it is to
stop. Other commands have nothing to end yet, and a KeyboardInterrupt amid imports is a traceback, if not a crash.
Imports next to nothing, for it comes before everything else.
"""

import os
import signal
from types import FrameType
from typing import Final

_HELD: Final = (signal.SIGHUP, signal.SIGTERM, signal.SIGINT)


class HeldSignal:
    """A signal handler that remembers that its signal came. Found again with `signal.getsignal`."""

    def __init__(self) -> None:
        self.has_come = False

    def __call__(self, number: int, _frame: FrameType | None) -> None:
        """Remember; of those that ask to stop, a second one is not to be waited out."""
        if self.has_come and number != signal.SIGHUP:
            # Not `sys.exit`, whose exception an import in progress might catch. Shells report signal n as 128 + n.
            os._exit(128 + number)
        self.has_come = True


def hold_signals() -> None:
    """Let the signals wait for whoever sets a handler of its own.

    A handler rather than SIG_IGN, which programs that are started meanwhile would inherit (execve(2)).
    """
    for number in _HELD:
        signal.signal(number, HeldSignal())


def end_at_interrupt() -> None:
    """Let Ctrl-C end the process at once, unless it is ignored, as in what a shell runs in the background."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def raise_at_interrupt() -> None:
    """Take back `end_at_interrupt`: from here on Ctrl-C is a KeyboardInterrupt."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def ignore_hang_ups() -> None:
    """Keep the exit code that was decided on: the interpreter gives up its handlers before it is gone."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)


def came_early(handler: object) -> bool:
    """Whether the signal whose handler this was has come already."""
    return isinstance(handler, HeldSignal) and handler.has_come
