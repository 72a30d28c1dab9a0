"""Tests that a reload applies changes outside of the file."""

import asyncio
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from gateway.errors import Problem
from gateway.reload.pipeline import ReloadPipeline
from tests.reload.pipelines import opened, reload

FILE = """\
plugins: [plugins]
tools:
  plain: {description: Fixed., content: [hi]}
  env: {description: "In ${env:PLACE:-nowhere}.", content: [hi]}
  command: {description: Runs., shell: {command: [./run.sh]}}
  function: {description: Calls., python: "words:say"}
  vague: {content: [x]}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "plugins").mkdir()
    (tmp_path / "config.yaml").write_text(FILE)
    (tmp_path / "plugins" / "words.py").write_text("def say() -> str:\n    'Says.'\n    return 'one'\n")
    (tmp_path / "run.sh").write_text("#!/bin/sh\n")
    (tmp_path / "run.sh").chmod(0o755)
    return tmp_path


def edit(folder: Path, old: str, new: str) -> Callable[[], object]:
    return lambda: (folder / "config.yaml").write_text(FILE.replace(old, new))


async def warnings_after(pipeline: ReloadPipeline, change: Callable[[], object]) -> Sequence[Problem]:
    change()
    await reload(pipeline)
    return pipeline.store.current.warnings


async def test_environment_variables_are_reread(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened(folder / "config.yaml") as pipeline:
        monkeypatch.setenv("PLACE", "town")
        await reload(pipeline)
        found = pipeline.store.current.tool("env")
        assert found is not None
        assert found.definition["description"] == "In town."


async def test_plugin_code_in_use_stays_loaded(folder: Path) -> None:
    async with opened(folder / "config.yaml") as pipeline:
        loaded = {name: module for name, module in sys.modules.items() if name.endswith(".words")}
        edit(folder, "Fixed.", "Changed.")()
        await reload(pipeline)
        assert loaded
        assert all(sys.modules.get(name) is module for name, module in loaded.items())
        assert "plugin shutdown" not in {task.get_name() for task in asyncio.all_tasks()}


async def test_warnings_have_the_lines_of_the_new_file(folder: Path) -> None:
    async with opened(folder / "config.yaml") as pipeline:
        (before,) = pipeline.store.current.warnings
        assert before.path == "tools.vague"
        (after,) = await warnings_after(pipeline, edit(folder, "tools:\n", "\n\ntools:\n"))
        assert before.location is not None
        assert after.location is not None
        assert (after.message, after.location.line) == (before.message, before.location.line + 2)


async def test_world_writable_program_is_a_warning(folder: Path) -> None:
    async with opened(folder / "config.yaml") as pipeline:
        found = await warnings_after(pipeline, lambda: (folder / "run.sh").chmod(0o757))
        assert [each.path for each in found] == ["tools.command.shell.command", "tools.vague"]
