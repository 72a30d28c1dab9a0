"""The process: `mcp-gateway`, and `python -m gateway`."""

import gc
import sys

from gateway.held_signals import end_at_interrupt, hold_signals, ignore_hang_ups, raise_at_interrupt

_IS_DAEMON = sys.argv[1:2] == ["serve"]
if _IS_DAEMON:
    hold_signals()  # before the imports, which take most of the time to start
else:
    end_at_interrupt()

gc.disable()  # modules are no garbage, and collections took a tenth of the time to import them
from gateway import cli  # noqa: E402 - after the lines before


def main() -> int:
    """Run the command line and return its exit code."""
    try:
        return cli.main(on_imported=_begin)
    finally:  # also after an error in the command line, which is a SystemExit
        if _IS_DAEMON:
            ignore_hang_ups()


def _begin() -> None:
    """Turn the collector on, except for what was imported: at the end of a command it took longer than the command."""
    gc.freeze()
    gc.enable()
    raise_at_interrupt()


if __name__ == "__main__":
    sys.exit(main())
