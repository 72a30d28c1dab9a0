"""Keeps the interpreter's own pauses out of calls. For a process of the gateway's own: these are settings of all of it.

Why: ten thousand tools are some million objects. While they are compiled, in a thread, a full collection of garbage
holds up every thread for a second, and again each time that the heap has grown by a quarter; and a thread that computes
gives way to the event loop after 5 ms, twice in each call.
"""

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_TURN_SECONDS: Final = 0.0005

_YOUNG: Final = 3_000
"""Objects of one collection while files are loaded: a millisecond or two."""
_NEVER: Final = 2**31 - 1


def tune_interpreter() -> None:
    """Shorten the turn of a thread that computes, and exempt what was made so far from collections."""
    sys.setswitchinterval(_TURN_SECONDS)
    gc.freeze()


@contextmanager
def gc_paused() -> Iterator[None]:
    """Collect only young objects meanwhile; where the interpreter is tuned, exempt the rest from later collections.

    Little of what is loaded and compiled has cycles, but for plugins' types: reference counts free it all the same.
    """
    before = gc.get_threshold()
    if before[1] == _NEVER:  # another load in this process has paused it, and sets it back
        yield
        return
    gc.set_threshold(_YOUNG, _NEVER, _NEVER)  # what survives goes to the next generation, which nobody looks through
    try:
        yield
    finally:
        gc.set_threshold(*before)
        if sys.getswitchinterval() <= 2 * _TURN_SECONDS:
            gc.freeze()
