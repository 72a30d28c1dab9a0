"""One file for each mistake that compiling finds. Its first lines are all that may be said about it.

`# expect line:column: path: message` is an error, and `# doubt …` a warning.
"""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import pytest

from gateway.catalog.compiler import compile_catalog
from gateway.catalog.plugins import Plugins
from gateway.config.loader import load
from gateway.errors import ConfigError, Problem, Severity
from gateway.executors.services import Services, running_services

TESTDATA: Final = Path(__file__).parent / "testdata"
INVALID: Final = sorted(TESTDATA.glob("invalid-*.yaml"))
WORDS: Final = {Severity.ERROR: "expect", Severity.WARNING: "doubt"}


@pytest.fixture
async def services() -> AsyncIterator[Services]:
    async with running_services() as services:
        yield services


def problems_of(main: Path, services: Services) -> tuple[Problem, ...]:
    plugins = Plugins()
    try:
        loaded = load(main, environ={})
        return compile_catalog(loaded, services=services, plugins=plugins, generation=1, environ={}).warnings
    except ConfigError as error:
        return error.problems
    finally:
        plugins.close()


def shown(problem: Problem) -> str:
    location = problem.location
    assert location is not None
    message = problem.message.replace(f"{TESTDATA}/", "")
    return f"{WORDS[problem.severity]} {location.line}:{location.column}: {problem.path}: {message}"


@pytest.mark.parametrize("invalid", INVALID, ids=lambda path: path.stem)
async def test_a_mistake_is_named_once_and_at_its_place(invalid: Path, services: Services) -> None:
    lines = invalid.read_text(encoding="utf-8").splitlines()
    expected = [line.removeprefix("# ") for line in lines if line.startswith(("# expect ", "# doubt "))]
    assert [shown(problem) for problem in problems_of(invalid, services)] == expected


@pytest.mark.parametrize("invalid", INVALID, ids=lambda path: path.stem)
async def test_a_message_is_one_line(invalid: Path, services: Services) -> None:
    for problem in problems_of(invalid, services):
        assert "\n" not in problem.message
        assert problem.message[-1] not in ".: "
