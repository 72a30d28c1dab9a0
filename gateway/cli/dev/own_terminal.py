"""The terminal for one writer alone: whatever else the process writes comes as lines, and nothing is torn."""

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final, NamedTuple, TextIO

from gateway.cli.dev.quiet_keys import quiet_keys

_FAREWELL: Final = b"\x1b[?25h\r\n"
"""Shows the cursor, on a line of its own."""


class OwnTerminal(NamedTuple):
    stream: TextIO
    """Leads to where standard output led."""
    hand_over: Callable[[Callable[[str], None]], None]
    """Takes whom the lines are handed to, in a thread of their own."""
    leave: Callable[[], None]
    """Leaves a terminal as it was found, from any thread, should the process end without ado."""


@contextmanager
def own_terminal() -> Iterator[OwnTerminal]:
    """Within it, what anybody writes to standard output or error, logging and plugins included, comes as lines."""
    sys.stdout.flush()
    sys.stderr.flush()
    out, errors = os.dup(1), os.dup(2)
    reading, writing = os.pipe()
    os.dup2(writing, 1)
    os.dup2(writing, 2)
    os.close(writing)
    readers: list[threading.Thread] = []

    def hand_over(take: Callable[[str], None]) -> None:
        readers.append(threading.Thread(target=_read_lines, args=(reading, take), name="own output", daemon=True))
        readers[0].start()

    restore = quiet_keys() if os.isatty(out) else _nothing

    def leave() -> None:
        restore()
        if os.isatty(out):
            os.write(out, _FAREWELL)

    stream = os.fdopen(os.dup(out), "w", encoding="utf-8", errors="backslashreplace")
    try:
        yield OwnTerminal(stream, hand_over, leave)
    finally:
        restore()
        sys.stdout.flush()
        sys.stderr.flush()
        os.dup2(out, 1)  # the last writing ends are closed, and the reader comes to its end
        os.dup2(errors, 2)
        for reader in readers:
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
