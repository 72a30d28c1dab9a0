"""Tests for the reload pipeline."""

import gc
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from gateway.config.definition_source import DefinitionSource
from gateway.config.models.interpolated_text import MASK
from gateway.config.reading import interpolation
from gateway.executors.invocation import RawOutput
from gateway.reload.pipeline import ReloadPipeline
from tests.effort import counted_lines
from tests.executors.recording import make_invocation
from tests.reload.pipelines import opened, refused, reload

FILE = """\
include: [tools.yaml]
plugins: [plugins]
connections: {api: {base_url: https://api.example.com, headers: {Authorization: "${file:token}"}}}
"""
PLUGIN = "def second() -> str:\n    'Second.'\n    return 'WORD'\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "plugins").mkdir()
    (tmp_path / "config.yaml").write_text(FILE)
    (tmp_path / "tools.yaml").write_text('tools: {second: {python: "words:second"}}\n')
    (tmp_path / "plugins" / "words.py").write_text(PLUGIN)
    (tmp_path / "token").write_text("hunter2-hunter2")
    return tmp_path


def offered(folder: Path) -> AbstractAsyncContextManager[ReloadPipeline]:
    return opened(folder / "config.yaml")


async def test_every_file_and_plugin_directory_has_a_digest(folder: Path) -> None:
    async with offered(folder) as pipeline:
        files = dict(pipeline.served.files)
        assert set(files) == {folder / name for name in ("config.yaml", "tools.yaml", "token", "plugins")}
        (folder / "plugins" / "words.py").write_text(PLUGIN.replace("WORD", "another"))
        renewed = (await pipeline.load_and_compile()).files
    assert {path.name for path in files if files[path] != renewed[path]} == {"plugins"}


async def test_digest_depends_on_files_and_code(folder: Path) -> None:
    async with offered(folder) as pipeline:
        seen = [pipeline.served.digest]
        for name, old, new in (("tools.yaml", "second:", "other:"), ("plugins/words.py", "WORD", "another")):
            changed = folder / name
            changed.write_text(changed.read_text().replace(old, new))
            seen.append((await pipeline.load_and_compile()).digest)
    assert len(set(seen)) == 3


async def test_digest_is_the_same_in_every_process(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Secrets have keyed digests with a key per process."""
    async with offered(folder) as pipeline:
        here = pipeline.served
    monkeypatch.setattr(interpolation, "_KEY", b"of another process")
    async with offered(folder) as pipeline:
        there = pipeline.served
    assert here.files[folder / "token"] != there.files[folder / "token"]
    assert here.digest == there.digest


async def test_changed_release_link_triggers_a_reload(folder: Path) -> None:
    """The usual deployment. For directories that become links see tests/attacks/test_files.py."""
    for release in ("one", "two"):
        (folder / release).mkdir()
        (folder / release / f"{release}.md").write_text(release)
    (folder / "current").symlink_to("one")
    (folder / "config.yaml").write_text(f'{FILE}resources: {{docs: {{files: "*.md", root: current}}}}\n')
    async with offered(folder) as pipeline:
        assert list(pipeline.served.catalog.resources) == ["docs:///one.md"]
        (folder / "next").symlink_to("two")
        (folder / "next").rename(folder / "current")
        await reload(pipeline)
        assert list(pipeline.served.catalog.resources) == ["docs:///two.md"]


async def test_replaced_root_is_served_without_a_reload(folder: Path) -> None:
    (folder / "docs").mkdir()
    (folder / "config.yaml").write_text(f'{FILE}resources: {{docs: {{files: "*.md", root: docs}}}}\n')
    async with offered(folder) as pipeline:
        (folder / "docs").rename(folder / "old")
        (folder / "docs").mkdir()
        (folder / "docs" / "new.md").write_text("new")
        found = pipeline.served.catalog.resource("docs:///new.md")
        assert found is not None
        outcome = await found[0].executor.execute(make_invocation(found[1]))
        assert isinstance(outcome, RawOutput)
        assert outcome.data == b"new"


async def test_rejected_file_keeps_served_secrets_masked(folder: Path) -> None:
    async with offered(folder) as pipeline:
        (folder / "token").write_text("tr0ub4dor-tr0ub4dor")
        (folder / "tools.yaml").write_text("tools: {second: {python: none}}\n")
        assert len(await refused(pipeline)) == 1
        assert pipeline.redactor.text("hunter2-hunter2, tr0ub4dor-tr0ub4dor") == f"{MASK}, {MASK}"


async def test_calls_from_before_a_reload_keep_their_secrets_masked(folder: Path) -> None:
    async with offered(folder) as pipeline:
        (folder / "token").write_text("tr0ub4dor-tr0ub4dor")
        await reload(pipeline)
        assert pipeline.redactor.text("hunter2-hunter2, tr0ub4dor-tr0ub4dor") == f"{MASK}, {MASK}"


def many_tools(count: int, edition: int) -> str:
    lines = (f"  tool_{index}: {{description: Edition {edition}., content: [hi]}}\n" for index in range(count))
    return "tools:\n" + "".join(lines)


def offering(
    folder: Path, text: str, *, sources: Sequence[DefinitionSource] = ()
) -> AbstractAsyncContextManager[ReloadPipeline]:
    (folder / "config.yaml").write_text(text)
    return opened(folder / "config.yaml", sources=sources)


async def test_reload_work_on_the_event_loop_is_constant(tmp_path: Path) -> None:
    async def lines(count: int) -> int:
        async with offering(tmp_path, many_tools(count, edition=1)) as pipeline:
            (tmp_path / "config.yaml").write_text(many_tools(count, edition=2))
            with counted_lines(ignoring=("/asyncio/", "/selectors.py", "/processes/")) as counted:
                await reload(pipeline)  # while timers run
            assert len(pipeline.store.current.tools) == count
            return counted.lines

    await lines(1)  # first, to exclude one-time work
    assert await lines(400) < await lines(20) * 1.5


async def test_reload_does_not_collect_old_garbage(tmp_path: Path) -> None:
    collected: list[int] = []

    def note(phase: str, facts: dict[str, int]) -> None:
        if phase == "start":
            collected.append(facts["generation"])

    async with offering(tmp_path, many_tools(500, edition=1)) as pipeline:
        (tmp_path / "config.yaml").write_text(many_tools(500, edition=2))
        before = gc.get_threshold()
        gc.callbacks.append(note)
        try:
            await pipeline.load_and_compile()
        finally:
            gc.callbacks.remove(note)
    assert set(collected) == {0}
    assert gc.get_threshold() == before
