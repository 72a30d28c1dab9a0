"""Every command in the documentation is run by a test, or listed in `not_executed.yaml` with a reason.

Guides, tutorial and installation are followed step by step: see `test_guides.py` and `test_install.py`.
"""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
import yaml

from gateway.cli import load
from tests.docs.guide import GUIDES, INSTALL, REFERENCES

PROJECT: Final = Path(__file__).parents[2]
PAGES: Final = sorted(
    [
        *PROJECT.glob("docs/**/*.md"),
        *(PROJECT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")),
        *(PROJECT / name for name in ("deploy/README.md", "benchmarks/README.md")),
    ]
)

NOT_EXECUTED: Final = yaml.safe_load(Path(__file__).with_name("not_executed.yaml").read_text())
"""Commands by page and reason."""
AT_MOST: Final = 50
"""Upper bound of the number of commands that are not executed."""


def shown_commands(markdown: str) -> Iterator[str]:
    """Yield the commands that are shown but not typed by a test: those in `sh` blocks."""
    for block in re.findall(r"^ *```(?:sh|bash)\n(.*?)^ *```$", markdown, re.MULTILINE | re.DOTALL):
        for line in re.sub(r" *\\\n *", " ", block).splitlines():
            if line.strip() and not line.lstrip().startswith("#"):
                yield line.strip()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(PROJECT).as_posix())
def test_every_command_is_executed_or_listed(page: Path) -> None:
    name = page.relative_to(PROJECT).as_posix()
    listed = [command for commands in NOT_EXECUTED.get(name, {}).values() for command in commands]
    assert sorted(shown_commands(page.read_text())) == sorted(listed)


def test_commands_that_no_test_runs_do_not_increase() -> None:
    assert sum(len(commands) for reasons in NOT_EXECUTED.values() for commands in reasons.values()) <= AT_MOST


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(PROJECT).as_posix())
def test_commands_only_appear_in_tested_pages(page: Path) -> None:
    assert page in {*GUIDES, *REFERENCES, INSTALL} or "```console" not in page.read_text()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(PROJECT).as_posix())
def test_code_has_fences_and_lists_nest_by_four_spaces(page: Path) -> None:
    """The site's Markdown is stricter than GitHub's."""
    text = re.sub(r"^ *```.*?^ *```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    assert re.findall(r"(?<=\n\n)    \S.*|(?<=\n) {1,3}(?:-|\d+\.) .*|(?<=\n)[^-\s].*\n- .*", text) == []


MENTIONED: Final = sorted(
    {
        command
        for page in PAGES
        for command in re.findall(r"`mcp-gateway ([a-z][a-z-]*(?: [^`]*)?)`", page.read_text())
        if not command.endswith("--help")
    }
)


@pytest.mark.parametrize("command", MENTIONED)
def test_arguments_of_a_mentioned_command(command: str) -> None:
    name, *words = shlex.split(command.partition(" > ")[0].replace("…", "URL"))
    module = load(name)
    if words:  # otherwise, only the name of the command is mentioned
        module.parser(f"mcp-gateway {name}").parse_args(words)
