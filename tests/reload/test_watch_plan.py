"""Tests for watch plans."""

import os
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from gateway.catalog.compile.file_globs import compile_directory
from gateway.catalog.file_dependencies import FileDependencies
from gateway.executors.files.globs import Globs
from gateway.reload.watch_plan import MAX_DEPTH, Snapshot, WatchPlan
from tests.executors.recording import make_scope
from tests.reload.pipelines import opened


def globs_of(root: Path, *patterns: str) -> Globs:
    problems = make_scope().problems
    dependencies = FileDependencies()
    globs = compile_directory(
        list(patterns), root=str(root), problems=problems, dependencies=dependencies, is_listed=True
    )
    assert globs is not None
    return globs


def test_events_with_real_paths_match_roots_behind_links(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    globs = WatchPlan(globs=frozenset({globs_of(tmp_path / "link", "**/*.md")}))
    tree = WatchPlan(trees=frozenset({tmp_path / "link"}))
    for plan in (globs, tree):
        assert plan.matters(str(tmp_path / "real" / "new.md"))
        assert not plan.matters(str(tmp_path / "other" / "new.md"))


def test_unrelated_log_next_to_served_files_is_ignored(tmp_path: Path) -> None:
    (tmp_path / "docs" / "deep").mkdir(parents=True)
    (tmp_path / "docs" / "deep" / "page.md").write_text("one")
    plan = WatchPlan(globs=frozenset({globs_of(tmp_path, "docs/**/*.md")}))
    before = plan.snapshot()
    (tmp_path / "daemon.log").write_text("a line")
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv" / "page.md").write_text("not served")
    assert not plan.snapshot().differs_from(before)
    assert not plan.matters(str(tmp_path / "daemon.log"))
    assert not plan.matters(str(tmp_path / ".venv" / "page.md"))


def test_files_matching_globs_are_watched_and_compared(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    plan = WatchPlan(globs=frozenset({globs_of(tmp_path, "docs/**/*.md")}))
    before = plan.snapshot()
    (tmp_path / "docs" / "new").mkdir()
    (tmp_path / "docs" / "new" / "page.md").write_text("one")
    assert plan.snapshot().differs_from(before)
    assert plan.matters(str(tmp_path / "docs" / "new"))
    assert plan.matters(str(tmp_path / "docs" / "new" / "page.md"))


@pytest.fixture
async def plan(tmp_path: Path) -> AsyncIterator[WatchPlan]:
    """A plan of a file with includes, prompts and a tree."""
    for directory in ("tools.d", "prompts", "deep/er"):
        (tmp_path / directory).mkdir(parents=True)
    (tmp_path / "config.yaml").write_text(
        "include: [tools.d/t*.yaml, deep/**, later.yaml]\nprompt_files: [prompts/*]\ntools: {a: {content: x}}\n"
    )
    (tmp_path / "later.yaml").write_text("tools: {b: {content: x}}\n")
    async with opened(tmp_path / "config.yaml") as pipeline:
        yield pipeline.watch_plan


@pytest.mark.parametrize(
    "name",
    ["other.yaml", "README.md", "tools.d/other.yaml", "tools.d/.t.yaml", "tools.d/notes.md", "prompts/data.json"],
)
async def test_unmatched_file_is_ignored(tmp_path: Path, plan: WatchPlan, name: str) -> None:
    before = plan.snapshot()
    (tmp_path / name).write_text("tools: {c: {content: x}}\n")
    assert not plan.snapshot().differs_from(before)
    assert not plan.matters(str(tmp_path / name))


@pytest.mark.parametrize(
    "name", ["config.yaml", "later.yaml", "tools.d/two.yaml", "deep/new.yaml", "deep/er/new.yaml", "prompts/new.md"]
)
async def test_matched_file_is_watched_and_compared(tmp_path: Path, plan: WatchPlan, name: str) -> None:
    before = plan.snapshot()
    saved = tmp_path / "saved"
    saved.write_text("tools: {c: {content: x}}\n")
    saved.rename(tmp_path / name)
    assert plan.snapshot().differs_from(before)
    assert plan.matters(str(tmp_path / name))


@pytest.fixture
def deep(tmp_path: Path) -> Iterator[Path]:
    """Nested directories, deeper than Python's recursion limit."""
    root = tmp_path / "deep"
    root.mkdir()
    descriptor = os.open(root, os.O_RDONLY)
    for _ in range(1500):  # by descriptor, because the path would be too long
        os.mkdir("d", dir_fd=descriptor)
        below = os.open("d", os.O_RDONLY, dir_fd=descriptor)
        os.close(descriptor)
        descriptor = below
    os.close(descriptor)
    yield root
    subprocess.run(["rm", "-rf", str(root)], check=True)  # pytest's own removal is recursive


def test_deep_directories_are_scanned_within_limits(deep: Path) -> None:
    for plan in (WatchPlan(trees=frozenset({deep})), WatchPlan(globs=frozenset({globs_of(deep, "**/*.md")}))):
        before = plan.snapshot()
        assert MAX_DEPTH <= len(before.states) <= MAX_DEPTH + 2
        (deep / "d" / f"{len(plan.trees)}.md").write_text("new")
        assert plan.snapshot().differs_from(before)


def test_directory_replacing_a_file_is_a_change(tmp_path: Path) -> None:
    place = tmp_path / "one.yaml"
    place.write_text("tools: {}")
    loaded = Snapshot(taken_at=place.stat().st_ctime_ns + 1)
    plan = WatchPlan(files=frozenset({place}), directories=frozenset({tmp_path}), present=frozenset({place}))
    assert not plan.snapshot().differs_from(loaded)
    place.unlink()
    place.mkdir()
    assert plan.snapshot().differs_from(loaded)
