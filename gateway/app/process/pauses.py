"""Keep the interpreter's own pauses out of calls. For the process's sake alone: these are its settings, not ours.

Why: a thousand tools are some hundred thousand objects. While they are compiled, in a thread, a full collection of
garbage holds everybody up for a quarter of a second, and again each time that the heap has grown by a quarter; and a
thread that computes gives way to the event loop after 5 ms, twice in each call.
"""

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_TURN_SECONDS: Final = 0.0005


def favour_the_loop() -> None:
    """Let the event loop have its turn soon, and spare what was made so far from collections."""
    sys.setswitchinterval(_TURN_SECONDS)
    gc.freeze()


@contextmanager
def collections_put_off() -> Iterator[None]:
    """Collect no garbage in cycles meanwhile: of what is loaded and compiled, little has cycles but plugins' types."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.collect(1)  # looks through what is new once, rather than with every step of its way to the old
            gc.enable()
