"""Checks `requires` of definitions. Definitions with unmet requirements are not served."""

import os
import shutil
import sys
from collections.abc import Iterator
from typing import Final

from gateway.config.models.definition_keys import Requires

_PLATFORMS: Final = {"macos": "darwin", "windows": "win32"}
"""Common names → `sys.platform`."""


def unmet(requires: Requires) -> str | None:
    """Return why the definition cannot be served, or None."""
    return "; ".join(_reasons(requires)) or None


def _reasons(requires: Requires) -> Iterator[str]:
    for command in requires.commands:
        if shutil.which(command) is None:
            yield f"the command {command} is not on PATH"
    for name in requires.env:
        if not os.environ.get(name):
            yield f"the variable {name} is not set"
    if requires.platforms and not any(_is_here(platform) for platform in requires.platforms):
        yield f"this platform is {sys.platform}, not {' or '.join(requires.platforms)}"


def _is_here(platform: str) -> bool:
    return sys.platform == _PLATFORMS.get(platform.lower(), platform.lower())
