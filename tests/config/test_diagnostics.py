"""Rendering of problems for terminals and as JSON."""

import re
from pathlib import Path

import pytest

from gateway.config.diagnostics.render import as_json, render
from gateway.errors import Location, Problem, Severity


def problem(line: str = "  command: df -h", column: int = 12, **facts: object) -> Problem:
    location = Location(file=Path("/etc/gateway/config.yaml"), line=9, column=column)
    known = {"message": "expected a list", "path": "tools.disk.command", "location": location, "source_line": line}
    return Problem(**{**known, **facts})  # type: ignore[arg-type] # facts of a test


def test_problem_is_shown_with_source_line_and_caret() -> None:
    assert render([problem()], colour=False).split("\n") == [
        "/etc/gateway/config.yaml:9:12: tools.disk.command: expected a list",
        "  9 |   command: df -h",
        "    |            ^",
    ]


def test_warning_is_labelled() -> None:
    first = render([problem(severity=Severity.WARNING)], colour=False).split("\n")[0]
    assert first == "/etc/gateway/config.yaml:9:12: warning: tools.disk.command: expected a list"


def test_problem_without_location_is_one_line() -> None:
    assert render([Problem(message="no")], colour=False) == "no"


def test_shorter_path_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    location = Location(file=tmp_path / "config.yaml", line=1, column=1)
    assert render([problem(location=location)], colour=False).startswith("config.yaml:1:1: ")
    assert render([problem()], colour=False).startswith("/etc/gateway/config.yaml:9:12: ")


def test_colours_are_optional() -> None:
    assert "\x1b[" in render([problem()], colour=True)
    assert "\x1b" not in render([problem()], colour=False)


def test_control_characters_are_not_printed() -> None:
    drawn = render([problem(line="a: \x1b[2J\tb", message="got \x1b]0;x\x07", column=4)], colour=False)
    assert all(character.isprintable() or character == "\n" for character in drawn)
    assert drawn.split("\n")[1] == "  9 | a: �[2J b"
    coloured = render([problem(line="a: \x1b[2J\tb", message="got \x1b]0;x\x07", column=4)], colour=True)
    assert re.sub("\x1b\\[[0-9]+m", "", coloured) == drawn


def test_caret_is_aligned_after_wide_characters() -> None:
    source, caret = render([problem(line="名前: x", column=5)], colour=False).split("\n")[1:]
    assert source == "  9 | 名前: x"
    assert caret == "    |       ^"


def test_long_line_is_truncated_around_the_caret() -> None:
    source, caret = render([problem(line="a" * 5000 + "!" + "b" * 5000, column=5001)], colour=False).split("\n")[1:]
    assert len(source) < 200
    assert source[caret.index("^")] == "!"


def test_problem_as_json() -> None:
    assert as_json(problem()) == {
        "severity": "error",
        "file": "/etc/gateway/config.yaml",
        "line": 9,
        "column": 12,
        "path": "tools.disk.command",
        "message": "expected a list",
    }
    assert as_json(Problem(message="no"))["file"] is None
