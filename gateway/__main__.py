"""The process: `mcp-gateway`, and `python -m gateway`."""

import gc
import sys

gc.disable()  # what is imported is no garbage, and looking for some took a tenth of the time to start
from gateway.cli import main  # noqa: E402 - after the line before

gc.freeze()  # nor does anybody look through it again: the end of a command took longer than many a command
gc.enable()

if __name__ == "__main__":
    sys.exit(main())
