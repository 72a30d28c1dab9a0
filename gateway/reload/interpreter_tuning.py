"""Reduces pauses caused by the interpreter. Affects the whole process.

Ten thousand tools are about a million objects. During a load, each full garbage collection would stop all threads for a
second. By default, a computing thread yields to the event loop only every 5 ms.
"""

import asyncio
import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from gateway.platform_facilities import glibc

_TURN_SECONDS: Final = 0.0005

_YOUNG: Final = 3_000
"""Objects per young collection during loads, which takes a millisecond or two."""
_NEVER: Final = 2**31 - 1

# Parameters of mallopt(3).
_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
_TRIM_SECONDS: Final = 30.0
_MAPPED_BYTES: Final = 1024 * 1024
"""The size from which blocks are mapped separately and returned to the system when freed."""


def tune_interpreter() -> None:
    """Shorten thread switching, and exempt existing objects from garbage collection."""
    sys.setswitchinterval(_TURN_SECONDS)
    _return_large_blocks()
    gc.freeze()


def _return_large_blocks() -> None:
    """Make glibc return large blocks when they are freed.

    By default it raises the threshold to the size of each freed mapped block, up to 32 MiB. Later large blocks then
    come from heaps, which rarely shrink.
    """
    if (mallopt := glibc("mallopt")) is not None:
        mallopt(_M_MMAP_THRESHOLD, _MAPPED_BYTES)
        mallopt(_M_TRIM_THRESHOLD, 2 * _MAPPED_BYTES)  # glibc's own default ratio.


async def return_free_memory() -> None:
    """Return free memory to the system every half minute. glibc otherwise keeps free pages between used blocks."""
    if (malloc_trim := glibc("malloc_trim")) is None:
        return
    while True:
        await asyncio.sleep(_TRIM_SECONDS)
        await asyncio.to_thread(malloc_trim, 0)


@contextmanager
def gc_paused() -> Iterator[None]:
    """Limit garbage collection to young objects. In a tuned interpreter, freeze the survivors.

    Loaded objects have few cycles except plugin types, so reference counting frees them.
    """
    before = gc.get_threshold()
    if before[1] == _NEVER:  # Another load has paused it.
        yield
        return
    gc.set_threshold(_YOUNG, _NEVER, _NEVER)  # Survivors move to a generation that is not collected.
    try:
        yield
    finally:
        gc.set_threshold(*before)
        if sys.getswitchinterval() <= 2 * _TURN_SECONDS:
            gc.freeze()
