"""A line on a terminal that says what a command waits for, once that has taken a second; gone when it is over."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from gateway.cli.output.console import Console

_PATIENCE = 1.0
"""Seconds that nobody minds."""


@contextmanager
def waiting(console: Console, text: str) -> Iterator[Callable[[str], None]]:
    """Show what is waited for, and for how long, in one line that is redrawn, where a person looks on.

    Yields what changes the text. A thread draws, for the event loop is busy while a file is loaded.
    """
    if not console.is_redrawable:
        yield lambda _: None
        return
    told = [text]
    is_over = threading.Event()
    thread = threading.Thread(target=_draw, args=(console, told, is_over), name="waiting line", daemon=True)
    thread.start()
    try:
        yield lambda text: told.__setitem__(0, text)
    finally:
        is_over.set()
        thread.join()
        console.erase()


def _draw(console: Console, told: list[str], is_over: threading.Event) -> None:
    began = time.monotonic()
    while not is_over.wait(_PATIENCE):
        console.redraw(f"{told[0]} … {time.monotonic() - began:.0f} s")
