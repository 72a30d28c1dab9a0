"""Checks a definition's `requires` against this machine; where it is not met, the definition is not served here."""

import os
import shutil
import sys
from collections.abc import Iterator
from typing import Final

from gateway.config.models.definition_keys import Requires

_PLATFORMS: Final = {"macos": "darwin", "windows": "win32"}
"""Names that people use → `sys.platform`."""


def unmet(requires: Requires) -> str | None:
    """Say why the definition cannot be served here; None if it can."""
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
