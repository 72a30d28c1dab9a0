"""Invalid files, with one error each. They start with the expected problems: `# expect line:column: path: message`."""

import os
from pathlib import Path
from typing import Final

import pytest

from gateway.config.diagnostics.render import shown_path
from gateway.config.loader import load
from gateway.errors import ConfigError, Problem, Severity

TESTDATA: Final = Path(__file__).parent / "testdata"
INVALID: Final = sorted(TESTDATA.glob("invalid-*"))


def problems_of(main: Path) -> tuple[Problem, ...]:
    try:
        return load(main, environ={}).problems
    except ConfigError as error:
        return error.problems


def shown(problem: Problem, main: Path) -> str:
    location = problem.location
    assert location is not None
    file = "" if location.file == main else f"{os.path.relpath(location.file, main.parent)}:"
    message = problem.message.replace(f"{shown_path(main.parent)}/", "")
    return f"{file}{location.line}:{location.column}: " + ": ".join(filter(None, (problem.path, message)))


@pytest.mark.parametrize("invalid", INVALID, ids=lambda path: path.name)
def test_invalid_file_has_exactly_the_expected_problems(invalid: Path) -> None:
    main = invalid / "config.yaml" if invalid.is_dir() else invalid
    lines = main.read_text(encoding="utf-8").splitlines()
    expected = [line.removeprefix("# expect ") for line in lines if line.startswith("# expect ")]

    problems = problems_of(main)

    assert [shown(problem, main) for problem in problems] == expected
    assert all(problem.severity is Severity.ERROR for problem in problems)


@pytest.mark.parametrize("invalid", INVALID, ids=lambda path: path.name)
def test_problem_has_its_source_line(invalid: Path) -> None:
    for problem in problems_of(invalid / "config.yaml" if invalid.is_dir() else invalid):
        assert problem.location is not None
        line = problem.location.file.read_text(encoding="utf-8").split("\n")[problem.location.line - 1]
        assert problem.source_line == line.rstrip()
        assert problem.location.column <= max(len(line), 1) + 1


def test_problems_are_sorted_by_file_and_line(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(
        """\
include: [more.yaml]
serve: {name: ops}
server: {version: 1.10}
tools:
  a: {shell: df -h}
  b: {shell: {command: [df]}, http: {url: "https://example.com"}}
  c: {description: nothing behind it}
  d: {shell: {command: [df, "${HOME}"]}}
  d: {shell: {command: [df]}}
"""
    )
    (tmp_path / "more.yaml").write_text(
        """\
tools:
  a: {shell: {command: [df]}}
  e: {timeout: soon, rate_limit: 1/s, shell: {command: [df]}}
"""
    )

    with pytest.raises(ConfigError) as caught:
        load(tmp_path / "config.yaml", environ={}).raise_errors()

    places = [
        (problem.location.file.name, problem.location.line, problem.location.column)
        for problem in caught.value.problems
        if problem.location is not None
    ]
    assert places == [
        ("config.yaml", 2, 1),
        ("config.yaml", 3, 19),
        ("config.yaml", 5, 14),
        ("config.yaml", 6, 31),
        ("config.yaml", 7, 3),
        ("config.yaml", 8, 29),
        ("config.yaml", 9, 3),
        ("more.yaml", 2, 3),
        ("more.yaml", 3, 16),
        ("more.yaml", 3, 34),
    ]
