"""What of a directory of files matters: what the globs mean, and what lies on the way to it."""

from pathlib import Path

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
