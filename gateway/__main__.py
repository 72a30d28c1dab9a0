"""The entry point of `mcp-gateway` and `python -m gateway`."""

import gc
import sys
from importlib.util import find_spec

# Check the platform before importing the other modules, which need POSIX.
if sys.platform == "win32" or find_spec("fcntl") is None:
    sys.exit(
        "mcp-gateway does not run on Windows.\n"
        "Install it in WSL (https://learn.microsoft.com/windows/wsl/install),\n"
        "or build and run its container image (docs/install.md)."
    )

from gateway.held_signals import end_at_interrupt, hold_signals, ignore_hang_ups, raise_at_interrupt

_IS_DAEMON = sys.argv[1:2] == ["serve"]
if _IS_DAEMON:
    hold_signals()  # before the slow imports
else:
    end_at_interrupt()

gc.disable()  # makes imports 10 % faster
from gateway import cli  # noqa: E402 - after the lines above


def main() -> int:
    try:
        return cli.main(on_imported=_begin)
    finally:  # also after a SystemExit for invalid arguments
        if _IS_DAEMON:
            ignore_hang_ups()


def _begin() -> None:
    # Exclude the imported modules from garbage collection, because scanning them is slow.
    gc.freeze()
    gc.enable()
    raise_at_interrupt()


if __name__ == "__main__":
    sys.exit(main())
