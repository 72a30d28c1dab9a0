"""Keeps the interpreter's own pauses out of calls. For a process of the gateway's own: these are settings of all of it.

Why: ten thousand tools are some million objects. While they are compiled, in a thread, a full collection of garbage
holds up every thread for a second, and again each time that the heap has grown by a quarter; and a thread that computes
gives way to the event loop after 5 ms, twice in each call.
"""

import asyncio
import ctypes
import gc
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

_TURN_SECONDS: Final = 0.0005

_YOUNG: Final = 3_000
"""Objects of one collection while files are loaded: a millisecond or two."""
_NEVER: Final = 2**31 - 1

# Parameters of mallopt(3).
_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
_TRIM_SECONDS: Final = 30.0
_MAPPED_BYTES: Final = 1024 * 1024
"""The smallest block that is mapped by itself, and so returned to the system as soon as it is freed."""


def tune_interpreter() -> None:
    """Shorten the turn of a thread that computes, and exempt what was made so far from collections."""
    sys.setswitchinterval(_TURN_SECONDS)
    _return_large_blocks()
    gc.freeze()


def _return_large_blocks() -> None:
    """Make glibc return large blocks when they are freed.

    By default it raises its threshold to the size of each mapped block that is freed, up to 32 MiB. After that, large
    answers come from the heaps of threads, which seldom shrink.
    """
    if (mallopt := _glibc("mallopt")) is not None:
        mallopt(_M_MMAP_THRESHOLD, _MAPPED_BYTES)
        mallopt(_M_TRIM_THRESHOLD, 2 * _MAPPED_BYTES)  # as glibc itself would choose it


async def return_free_memory() -> None:
    """Return free memory to the system every half minute: glibc keeps pages that lie between blocks in use."""
    if (malloc_trim := _glibc("malloc_trim")) is None:
        return
    while True:
        await asyncio.sleep(_TRIM_SECONDS)
        await asyncio.to_thread(malloc_trim, 0)


def _glibc(name: str) -> Callable[..., int] | None:
    """Return a function of glibc; None where the C library has none of that name."""
    function: Callable[..., int] | None = getattr(ctypes.CDLL(None), name, None) if sys.platform == "linux" else None
    return function


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
