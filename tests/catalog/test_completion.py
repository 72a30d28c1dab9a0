"""Completion: sources of suggestions, matching, and failing sources."""

import asyncio
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.catalog.compile.completion import fitting
from gateway.executors.shared_services import Services
from tests.catalog.conftest import Compile
from tests.executors.recording import make_invocation

PLUGIN = """
import itertools
import time


def names(value: str, region: str = "all") -> list[str]:
    return [f"{region}-{value}-1", f"{region}-{value}-2"]


def endless() -> list[str]:
    return itertools.count()


def broken(value: str) -> list[str]:
    raise RuntimeError("no")


def late(value: str) -> list[str]:
    time.sleep(0.2)
    return ["late"]
"""


def test_prefix_matches_come_first() -> None:
    assert fitting(["web", "Api-web", "WEBhook", "db", "web"], "web") == ("web", "WEBhook", "Api-web")
    assert fitting(["b", "a"], "") == ("b", "a")


@given(st.lists(st.text(max_size=5)), st.text(max_size=2))
def test_suggestions_are_candidates_without_duplicates(candidates: list[str], value: str) -> None:
    suggested = fitting(candidates, value)
    assert set(suggested) == {each for each in candidates if value.casefold() in each.casefold()}
    assert len(set(suggested)) == len(suggested)


async def suggest(compiled: Compile, source: str, value: str, *, seconds: float = 10, **others: str) -> list[str]:
    prompt = compiled(f"""
        plugins: [plugins]
        prompts:
          p:
            arguments: {{name: {{complete: {source}}}, region: Where}}
            messages: [{{user: "{{{{ name }}}} {{{{ region }}}}"}}]
    """).prompts["p"]
    return list((await prompt.completers["name"](value, others, make_invocation(others, timeout=seconds))).values)


@pytest.fixture(autouse=True)
def plugins(tmp_path: Path) -> None:
    (tmp_path / "plugins").mkdir()
    (tmp_path / "plugins" / "naming.py").write_text(PLUGIN)


async def test_command_completion_returns_lines(compiled: Compile) -> None:
    source = '{command: [printf, "%s\\\\n", --, "b-{{ value }}", "{{ value }}-{{ region }}", "", "other"]}'
    assert await suggest(compiled, source, "x", region="eu") == ["x-eu", "b-x"]
    assert await suggest(compiled, source, "x") == ["b-x"]


async def test_typed_value_is_passed_as_one_argument(compiled: Compile, tmp_path: Path) -> None:
    source = '{command: [printf, "%s\\\\n", --, "{{ value }}"]}'
    typed = f"$(touch {tmp_path}/owned); `id` | 'x'"
    assert await suggest(compiled, source, typed) == [typed]
    assert not (tmp_path / "owned").exists()


async def test_completion_function_gets_its_parameters(compiled: Compile) -> None:
    assert await suggest(compiled, '{python: "naming:names"}', "x") == ["all-x-1", "all-x-2"]
    assert await suggest(compiled, '{python: "naming:names"}', "x", region="eu") == ["eu-x-1", "eu-x-2"]


async def test_file_completion_lists_current_files(compiled: Compile, tmp_path: Path) -> None:
    for name in ("one.md", "two.md", "three.txt"):
        (tmp_path / name).write_text("")
    assert await suggest(compiled, '{files: "*.md"}', "") == ["one.md", "two.md"]


@pytest.mark.parametrize(
    "source",
    [
        "{command: [sh, -c, 'echo a; exit 3']}",
        "{command: [no-such-program]}",
        '{command: [printf, "{{ value }}"]}',
        '{python: "naming:broken"}',
        '{python: "naming:endless"}',
    ],
)
async def test_failing_source_has_no_suggestions(compiled: Compile, source: str) -> None:
    assert await suggest(compiled, source, "-v") == []


async def test_hanging_source_is_stopped(compiled: Compile, services: Services) -> None:
    async with asyncio.timeout(10):
        assert await suggest(compiled, "{command: [sleep, '60']}", "", seconds=0.1) == []
        assert await suggest(compiled, '{python: "naming:late"}', "", seconds=0.1) == []
        while services.threads.busy or services.processes.running:
            await asyncio.sleep(0.01)
