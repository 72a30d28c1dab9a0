"""Finds the files with tests marked `build` by their text, so that `pytest -m build` imports only these.

`tests/test_build_files.py` fails if a file with such tests is not found.
"""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import pytest

UNMARKED: Final = pytest.StashKey[list[str]]()
"""Collected files with such tests that are not found by their text."""
_MARK: Final = "build"
_PATTERN: Final = re.compile(r"\bmark\.build\b|\bcells\(")
"""`cells` marks tests of the revisions between the first and the last."""


def is_skipped(path: Path, config: pytest.Config) -> bool:
    is_test_file = path.name.startswith("test_") and path.suffix == ".py"
    return is_test_file and config.getoption("markexpr") == _MARK and not _contains_mark(path)


def find_unmarked(items: Iterable[pytest.Item], config: pytest.Config) -> None:
    """Set `UNMARKED`. Must be called before tests are deselected by their marks."""
    files = {item.path for item in items if item.get_closest_marker(_MARK) is not None}
    config.stash[UNMARKED] = sorted(str(path) for path in files if not _contains_mark(path))


def _contains_mark(path: Path) -> bool:
    return _PATTERN.search(path.read_text(encoding="utf-8")) is not None
