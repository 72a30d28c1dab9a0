"""Reserves the terminal for one writer, and passes other output of the process to a function."""

import os
import sys
import termios
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final, NamedTuple, TextIO

_SHOW_CURSOR: Final = b"\x1b[?25h\r\n"
"""Show the cursor (DECTCEM), and start a new line."""
_LOCAL_MODES: Final = 3
"""Index of the local modes in the list of `termios.tcgetattr`."""


class RawTerminal(NamedTuple):
    stream: TextIO
    """The original standard output."""
    hand_over: Callable[[Callable[[str], None]], None]
    """Sets the function that receives each line, in a separate thread."""
    leave: Callable[[], None]
    """Restores the terminal before the process exits without cleanup. Can be called from any thread."""


@contextmanager
def raw_terminal() -> Iterator[RawTerminal]:
    """Capture standard output and standard error, including the output of plugins."""
    # Buffered text belongs on the terminal, not in the pipe.
    sys.stdout.flush()
    sys.stderr.flush()
    out, errors = os.dup(1), os.dup(2)
    reading, writing = os.pipe()
    os.dup2(writing, 1)
    os.dup2(writing, 2)
    # The pipe must end when descriptors 1 and 2 are closed.
    os.close(writing)
    readers: list[threading.Thread] = []

    def hand_over(take: Callable[[str], None]) -> None:
        readers.append(threading.Thread(target=_read_lines, args=(reading, take), name="own output", daemon=True))
        readers[0].start()

    restore = _suppress_echo() if os.isatty(out) else _nothing

    def leave() -> None:
        restore()
        if os.isatty(out):
            os.write(out, _SHOW_CURSOR)

    stream = os.fdopen(os.dup(out), "w", encoding="utf-8", errors="backslashreplace")
    try:
        yield RawTerminal(stream, hand_over, leave)
    finally:
        restore()
        sys.stdout.flush()
        sys.stderr.flush()
        os.dup2(out, 1)  # closes the last writers of the pipe, so the reader ends
        os.dup2(errors, 2)
        for reader in readers:
            # With a timeout, because a child process of a plugin can keep the pipe open.
            reader.join(1.0)
        with suppress(BrokenPipeError):
            stream.close()
        os.close(out)
        os.close(errors)


def _nothing() -> None:
    pass


def _read_lines(descriptor: int, take: Callable[[str], None]) -> None:
    with os.fdopen(descriptor, encoding="utf-8", errors="replace") as lines:
        for line in lines:
            take(line.rstrip("\n"))


def _suppress_echo(descriptor: int = 0) -> Callable[[], None]:
    """Turn echo off, and return a function that turns it on again.

    Typed characters, such as `^C`, would damage the view. Does nothing in a background process.
    """
    try:
        if os.tcgetpgrp(descriptor) != os.getpgrp():  # termios(3): a background process would be stopped by SIGTTOU
            return lambda: None
        before = termios.tcgetattr(descriptor)
    except (OSError, termios.error):
        return lambda: None
    quiet = [*before]
    quiet[_LOCAL_MODES] = before[_LOCAL_MODES] & ~termios.ECHO
    with suppress(termios.error):
        termios.tcsetattr(descriptor, termios.TCSANOW, quiet)

    def restore() -> None:
        with suppress(termios.error):
            termios.tcsetattr(descriptor, termios.TCSANOW, before)

    return restore
