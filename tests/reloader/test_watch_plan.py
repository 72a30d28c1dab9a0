"""What of a directory of files matters: what the globs mean, and what lies on the way to it."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.app import Gateway
from gateway.config.settings import read_settings
from gateway.executors.files.executor import compile_file_globs
from gateway.executors.files.globs import Globs
from gateway.reloader.watch_plan import WatchPlan
from tests.executors.recording import make_scope


def globs_of(root: Path, *patterns: str) -> Globs:
    problems = make_scope().problems
    globs = compile_file_globs(list(patterns), root=str(root), problems=problems)
    assert globs is not None
    return globs


def test_a_log_that_grows_beside_served_files_is_neither_looked_at_nor_heard(tmp_path: Path) -> None:
    (tmp_path / "docs" / "deep").mkdir(parents=True)
    (tmp_path / "docs" / "deep" / "page.md").write_text("one")
    plan = WatchPlan(globs=frozenset({globs_of(tmp_path, "docs/**/*.md")}), suffixes=())
    before = plan.snapshot()
    (tmp_path / "daemon.log").write_text("a line")
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv" / "page.md").write_text("not served")
    assert not plan.snapshot().differs_from(before)
    assert not plan.matters(str(tmp_path / "daemon.log"))
    assert not plan.matters(str(tmp_path / ".venv" / "page.md"))


def test_what_the_globs_mean_is_both(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    plan = WatchPlan(globs=frozenset({globs_of(tmp_path, "docs/**/*.md")}), suffixes=())
    before = plan.snapshot()
    (tmp_path / "docs" / "new").mkdir()
    (tmp_path / "docs" / "new" / "page.md").write_text("one")
    assert plan.snapshot().differs_from(before)
    assert plan.matters(str(tmp_path / "docs" / "new"))
    assert plan.matters(str(tmp_path / "docs" / "new" / "page.md"))


@pytest.fixture
async def plan(tmp_path: Path) -> AsyncIterator[WatchPlan]:
    """Of a file with included files, prompts and a tree."""
    for directory in ("tools.d", "prompts", "deep/er"):
        (tmp_path / directory).mkdir(parents=True)
    (tmp_path / "config.yaml").write_text(
        "include: [tools.d/t*.yaml, deep/**, later.yaml]\nprompt_files: [prompts/*]\ntools: {a: {content: x}}\n"
    )
    (tmp_path / "later.yaml").write_text("tools: {b: {content: x}}\n")
    settings = read_settings({"config": tmp_path / "config.yaml", "log_level": "error", "no_watch": True})
    async with Gateway(settings) as gateway:
        yield gateway._reloader._plan()


@pytest.mark.parametrize(
    "name",
    ["other.yaml", "README.md", "tools.d/other.yaml", "tools.d/.t.yaml", "tools.d/notes.md", "prompts/data.json"],
)
async def test_a_file_beside_those_that_are_meant_is_neither_looked_at_nor_heard(
    tmp_path: Path, plan: WatchPlan, name: str
) -> None:
    before = plan.snapshot()
    (tmp_path / name).write_text("tools: {c: {content: x}}\n")
    assert not plan.snapshot().differs_from(before)
    assert not plan.matters(str(tmp_path / name))


@pytest.mark.parametrize(
    "name", ["config.yaml", "later.yaml", "tools.d/two.yaml", "deep/new.yaml", "deep/er/new.yaml", "prompts/new.md"]
)
async def test_a_file_that_is_meant_is_both(tmp_path: Path, plan: WatchPlan, name: str) -> None:
    before = plan.snapshot()
    saved = tmp_path / "saved"
    saved.write_text("tools: {c: {content: x}}\n")
    saved.rename(tmp_path / name)
    assert plan.snapshot().differs_from(before)
    assert plan.matters(str(tmp_path / name))
