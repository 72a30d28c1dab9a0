"""Invalid files for the compiler. Their first lines are the expected problems.

`# expect line:column: path: message` is an error, and `# warning …` a warning.
"""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import pytest

from gateway.catalog.compile.compiler import compile_catalog
from gateway.catalog.plugins import Plugins
from gateway.config.loader import load
from gateway.errors import ConfigError, Problem, Severity
from gateway.executors.shared_services import Services, running_services

TESTDATA: Final = Path(__file__).parent / "testdata"
INVALID: Final = sorted(TESTDATA.glob("invalid-*.yaml"))
WORDS: Final = {Severity.ERROR: "expect", Severity.WARNING: "warning"}


@pytest.fixture
async def services() -> AsyncIterator[Services]:
    async with running_services() as services:
        yield services


def problems_of(main: Path, services: Services) -> tuple[Problem, ...]:
    plugins = Plugins()
    try:
        loaded = load(main, environ={})
        return compile_catalog(loaded, services=services, plugins=plugins, generation=1).warnings
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
async def test_invalid_file_has_exactly_the_expected_problems(invalid: Path, services: Services) -> None:
    lines = invalid.read_text(encoding="utf-8").splitlines()
    expected = [line.removeprefix("# ") for line in lines if line.startswith(("# expect ", "# warning "))]
    assert [shown(problem) for problem in problems_of(invalid, services)] == expected


@pytest.mark.parametrize("invalid", INVALID, ids=lambda path: path.stem)
async def test_messages_are_single_lines(invalid: Path, services: Services) -> None:
    for problem in problems_of(invalid, services):
        assert "\n" not in problem.message
        assert problem.message[-1] not in ".: "


async def test_invalid_yaml_does_not_hide_problems_of_other_files(tmp_path: Path, services: Services) -> None:
    (tmp_path / "broken.yaml").write_text("connections: {known: {base_url: [}\n", encoding="utf-8")
    (tmp_path / "broken.py").write_text("raise RuntimeError('no licence')\n", encoding="utf-8")
    main = tmp_path / "config.yaml"
    main.write_text(
        """\
include: [broken.yaml]
plugins: [.]
tools:
  a: {python: "broken:score"}
  b: {python: "absent:score"}
  c: {description: C, http: {connection: unknown, url: /}}
  d: {description: D, http: {connection: known, url: /}}
  e: {description: E, content: "{{ name }}"}
""",
        encoding="utf-8",
    )
    assert [shown(problem).partition(": ")[0] for problem in problems_of(main, services)] == [
        "expect 4:15",
        "expect 5:15",
        "expect 6:42",
        "expect 8:32",
        "expect 1:34",
    ]


async def test_missing_plugin_directory_does_not_hide_other_problems(tmp_path: Path, services: Services) -> None:
    (tmp_path / "good.py").write_text("def score(text: str) -> str:\n    'Score.'\n    return text\n", encoding="utf-8")
    main = tmp_path / "config.yaml"
    main.write_text('plugins: [absent, .]\ntools: {a: {python: "good:scor"}, b: {python: "far:f"}}\n', encoding="utf-8")
    assert [problem.path for problem in problems_of(main, services)] == ["plugins.0", "tools.a.python.call"]


async def test_unmatched_rule_is_not_reported_if_a_file_is_unreadable(tmp_path: Path, services: Services) -> None:
    (tmp_path / "broken.yaml").write_text("tools: {deploy: {content: [}\n", encoding="utf-8")
    main = tmp_path / "config.yaml"
    main.write_text(
        "include: [broken.yaml]\n"
        "auth: {api_keys: {ci: {sha256: '" + "0" * 64 + "'}}, rules: [{match: {name: deploy}, scopes: [ops]}]}\n",
        encoding="utf-8",
    )
    assert ["YAML syntax" in problem.message for problem in problems_of(main, services)] == [True]
