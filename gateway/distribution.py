"""The name and the optional extras of the Python distribution."""

import re
import shlex
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, requires
from typing import Final

DISTRIBUTION: Final = "mcp-gateway-daemon"


def install_command(extra: str) -> str:
    """Return the command that installs the packages of an extra."""
    names: list[str] = []
    with suppress(PackageNotFoundError):  # the gateway runs from a checkout
        lines = requires(DISTRIBUTION) or ()
        names = [re.split("[<>=;]", line)[0] for line in lines if re.search(f"extra == .{extra}\\b", line)]
    return f"pip install {shlex.join(names or [f'{DISTRIBUTION}[{extra}]'])}"
