"""A terminal that does not show what is typed: a letter, or the `^C` that ends it all, would move what is drawn."""

import os
import termios
from collections.abc import Callable
from contextlib import suppress
from typing import Final

_LOCAL_MODES: Final = 3
"""Where `termios.tcgetattr` has the flags that say what becomes of keys."""


def quiet_keys(descriptor: int = 0) -> Callable[[], None]:
    """Turn the echo off, and return what turns it on again. Does nothing where there is no terminal of ours."""
    try:
        if os.tcgetpgrp(descriptor) != os.getpgrp():  # in the background, to change it would stop the process
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
