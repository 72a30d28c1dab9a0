"""Which files hold tests marked `build`, by their text: a sixth. A run of only such tests imports no other file.

A file whose text does not show the mark of one of its tests fails `tests/test_build_files.py`, so that none is lost.
"""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import pytest

HIDDEN: Final = pytest.StashKey[list[str]]()
"""The files of this run that hold such a test and do not show it."""
_MARK: Final = "build"
_SHOWN: Final = re.compile(r"\bmark\.build\b|\bcells\(")
"""`cells` marks the revisions between the first and the last."""


def is_left_out(path: Path, config: pytest.Config) -> bool:
    """Return whether a test run does not need a file."""
    is_file = path.name.startswith("test_") and path.suffix == ".py"
    return is_file and config.getoption("markexpr") == _MARK and not _shows_mark(path)


def find_hidden(items: Iterable[pytest.Item], config: pytest.Config) -> None:
    """Look at all that was collected, before the marks deselect some."""
    files = {item.path for item in items if item.get_closest_marker(_MARK) is not None}
    config.stash[HIDDEN] = sorted(str(path) for path in files if not _shows_mark(path))


def _shows_mark(path: Path) -> bool:
    return _SHOWN.search(path.read_text(encoding="utf-8")) is not None
