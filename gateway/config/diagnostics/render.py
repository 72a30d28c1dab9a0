"""Renders problems as text and JSON."""

import os
import unicodedata
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from gateway.errors import Problem, Severity
from gateway.json_types import JsonObject

_WIDTH: Final = 140
"""Maximum columns of a source line. Longer lines are truncated on both sides of the caret."""

_BOLD, _RED, _YELLOW, _DIM, _PLAIN = "\x1b[1m", "\x1b[31m", "\x1b[33m", "\x1b[2m", "\x1b[0m"


def render(problems: Iterable[Problem], *, colour: bool) -> str:
    """Return `file:line:column: path: message` for each problem, with its source line and a caret."""
    return "\n".join(_drawn(problem, colour=colour) for problem in problems)


def as_json(problem: Problem) -> JsonObject:
    """Return a problem in the format of `validate --json`."""
    location = problem.location
    return {
        "severity": problem.severity.value,
        "file": str(location.file) if location else None,
        "line": location.line if location else None,
        "column": location.column if location else None,
        "path": problem.path,
        "message": problem.message,
    }


def shown_path(path: Path) -> str:
    """Return the given path or the path relative to the working directory, whichever is shorter."""
    return min(str(path), os.path.relpath(path), key=len)


def excerpt(problem: Problem) -> str | None:
    """Return the source line with a caret below it, or None if the problem has no location."""
    lines = _excerpt(problem, colour=False)
    return None if lines is None else "\n".join(lines)


def _drawn(problem: Problem, *, colour: bool) -> str:
    is_warning = problem.severity is Severity.WARNING
    at = problem.location
    where = "" if at is None else f"{shown_path(at.file)}:{at.line}:{at.column}"
    parts = [
        _styled(_printable(where), _BOLD, colour=colour),
        _styled("warning", _YELLOW, colour=colour) if is_warning else "",
        _printable(problem.path),
        _printable(problem.message),
    ]
    first = ": ".join(part for part in parts if part)
    lines = _excerpt(problem, colour=colour)
    return first if lines is None else "\n".join([first, *(f"  {line}" for line in lines)])


def _excerpt(problem: Problem, *, colour: bool) -> tuple[str, str] | None:
    if problem.location is None or not problem.source_line.strip():
        return None
    line, before = _cut(_printable(problem.source_line), problem.location.column - 1)
    number = str(problem.location.line)
    margin = " " * len(number)
    caret = _styled("^", _YELLOW if problem.severity is Severity.WARNING else _RED, colour=colour)
    bar = _styled("|", _DIM, colour=colour)
    return f"{number} {bar} {line}", f"{margin} {bar} {' ' * _columns(before)}{caret}"


def _styled(text: str, style: str, *, colour: bool) -> str:
    return f"{style}{text}{_PLAIN}" if colour and text else text


def _cut(line: str, column: int) -> tuple[str, str]:
    # Keep some text after the caret visible.
    start = 0 if column < _WIDTH - 20 else column - _WIDTH // 2
    shown = ("…" if start else "") + line[start : start + _WIDTH] + ("…" if len(line) > start + _WIDTH else "")
    return shown, ("…" if start else "") + line[start:column]


def _columns(text: str) -> int:
    return sum(
        # Unicode Standard Annex #11: wide characters occupy two columns.
        0 if unicodedata.combining(each) else 2 if unicodedata.east_asian_width(each) in "WF" else 1
        for each in text
    )


def _printable(text: str) -> str:
    """Replace each control character, which could move the cursor, with a single printable character."""
    return "".join(each if each.isprintable() else " " if each == "\t" else "�" for each in text)
