"""File resources, for every kind of file and name."""

import asyncio
import os
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.catalog.compile.file_globs import compile_directory
from gateway.catalog.file_dependencies import FileDependencies
from gateway.errors import ExecutionError, ResourceNotFoundError
from gateway.executors.files.executor import (
    FileReader,
    ServedFile,
    ServedFiles,
    SingleFile,
)
from gateway.executors.files.globs import Globs, compile_globs
from gateway.executors.invocation import RawOutput
from gateway.threads import DaemonThreadPool
from tests.executors.recording import make_invocation, make_scope, messages_of

AWKWARD_NAMES = [
    "my file.md",
    "a:b.md",
    "[x].md",
    "50%.md",
    "c#.md",
    "q?.md",
    "ü.md",
    "a+b&c.md",
    "\udcff.md",
    "%41.md",
]


@pytest.fixture
async def threads() -> AsyncIterator[DaemonThreadPool]:
    async with DaemonThreadPool(4) as threads:
        yield threads


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    root.mkdir()
    return root


def served(root: Path, threads: DaemonThreadPool, *patterns: str, max_size: int = 1000) -> ServedFiles:
    globs = compile_globs(str(root), patterns or ["**/*"])
    return ServedFiles(globs=globs, prefix="docs:///", reader=FileReader(threads=threads, max_size=max_size))


async def read(files: ServedFiles, uri: str) -> bytes:
    """Read like a request: with the matcher, then the executor."""
    variables = ServedFile(files=files, variable="path").match(uri)
    if variables is None:
        raise ResourceNotFoundError(uri)
    outcome = await ServedFile(files=files, variable="path").execute(make_invocation(variables))
    assert isinstance(outcome, RawOutput)
    return outcome.data


@pytest.mark.parametrize("name", AWKWARD_NAMES)
async def test_file_of_any_name_is_read_by_its_uri(root: Path, threads: DaemonThreadPool, name: str) -> None:
    (root / "sub").mkdir()
    (root / "sub" / name).write_bytes(os.fsencode(name))
    files = served(root, threads)
    uri = files.uri_of(f"sub/{name}")
    assert uri == "docs:///sub/" + quote(os.fsencode(name), safe="")
    assert await read(files, uri) == os.fsencode(name)
    listed = await ServedFile(files=files, path=f"sub/{name}").execute(make_invocation())
    assert listed == RawOutput(data=os.fsencode(name), media_type="text/markdown")


async def test_client_can_leave_template_characters_unencoded(root: Path, threads: DaemonThreadPool) -> None:
    (root / "a:b.md").write_text("x")
    assert await read(served(root, threads), "docs:///a:b.md") == b"x"


@given(st.binary(min_size=1, max_size=30).filter(lambda name: not {b"/", b"\0", b"\\"} & {bytes([b]) for b in name}))
def test_every_file_name_is_restored_from_its_uri(name: bytes) -> None:
    path = os.fsdecode(name)
    files = ServedFiles(
        globs=compile_globs("/srv/files", ["**/*"]),
        prefix="docs:///",
        reader=FileReader(threads=None, max_size=1),  # type: ignore[arg-type] # nothing is read
    )
    assert files.path_of(files.uri_of(path)) == (None if path.startswith(".") else path)


async def test_only_matching_files_are_read(root: Path, threads: DaemonThreadPool) -> None:
    (root / "a.md").write_text("a")
    (root / "a.txt").write_text("a")
    files = served(root, threads, "*.md")
    assert await read(files, "docs:///a.md") == b"a"
    with pytest.raises(ResourceNotFoundError):
        await read(files, "docs:///a.txt")


async def test_file_is_read_at_each_call(root: Path, threads: DaemonThreadPool) -> None:
    (root / "a.md").write_text("old")
    files = served(root, threads)
    listed = ServedFile(files=files, path="a.md")
    (root / "a.md").write_text("new")
    assert await listed.execute(make_invocation()) == RawOutput(data=b"new", media_type="text/markdown")
    (root / "a.md").unlink()
    with pytest.raises(ResourceNotFoundError):
        await listed.execute(make_invocation())


async def test_listed_file_that_was_replaced_is_not_found(root: Path, threads: DaemonThreadPool) -> None:
    (root.parent / "secret").write_text("s")
    listed = ServedFile(files=served(root, threads), path="a.md")
    (root / "a.md").symlink_to("../secret")
    with pytest.raises(ResourceNotFoundError):
        await listed.execute(make_invocation())
    (root / "a.md").unlink()
    (root / "a.md").mkdir()
    with pytest.raises(ResourceNotFoundError):
        await listed.execute(make_invocation())


async def test_removed_root_has_no_files(root: Path, threads: DaemonThreadPool) -> None:
    files = served(root, threads)
    root.rmdir()
    with pytest.raises(ResourceNotFoundError):
        await read(files, "docs:///a.md")


async def test_variable_must_contain_a_matching_path(root: Path, threads: DaemonThreadPool) -> None:
    (root.parent / "secret").write_text("s")
    template = ServedFile(files=served(root, threads), variable="path")
    with pytest.raises(ResourceNotFoundError):
        await template.execute(make_invocation({"path": "../secret"}))


async def test_file_over_the_limit_is_an_error(root: Path, threads: DaemonThreadPool) -> None:
    (root / "a.md").write_bytes(b"x" * 1001)
    with pytest.raises(ExecutionError, match="larger than 1,000 bytes"):
        await read(served(root, threads), "docs:///a.md")


@pytest.mark.skipif(os.geteuid() == 0, reason="root can read every file")
async def test_unreadable_file_is_an_error_without_its_path(root: Path, threads: DaemonThreadPool) -> None:
    (root / "a.md").write_text("a")
    (root / "a.md").chmod(0)
    with pytest.raises(ExecutionError) as caught:
        await read(served(root, threads), "docs:///a.md")
    assert str(caught.value) == "Cannot read the file: Permission denied"


@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="needs a file that cannot be read from its start")
async def test_read_error_does_not_contain_the_path(threads: DaemonThreadPool) -> None:
    with pytest.raises(ExecutionError) as caught:
        await read(served(Path("/proc/self"), threads, "mem"), "docs:///mem")
    assert str(caught.value) == "Cannot read the file: Input/output error"


async def test_read_without_a_free_thread_is_an_error(root: Path) -> None:
    (root / "a.md").write_text("a")
    release = threading.Event()
    async with DaemonThreadPool(1) as threads:
        files = served(root, threads)
        waiting = asyncio.create_task(threads.run(release.wait, deadline=asyncio.get_running_loop().time() + 10))
        await asyncio.sleep(0)
        with pytest.raises(ExecutionError, match="all threads for large outputs and files were busy"):
            await ServedFile(files=files, path="a.md").execute(make_invocation(timeout=0.05))
        release.set()
        await waiting
        assert await ServedFile(files=files, path="a.md").execute(make_invocation()) == RawOutput(
            data=b"a", media_type="text/markdown"
        )


async def test_single_file_can_be_a_link_to_any_file(tmp_path: Path, threads: DaemonThreadPool) -> None:
    (tmp_path / "real.json").write_text("{}")
    (tmp_path / "link.json").symlink_to("real.json")
    reader = FileReader(threads=threads, max_size=10)
    file = SingleFile(path=str(tmp_path / "link.json"), uri="x:///y", reader=reader)
    assert await file.execute(make_invocation()) == RawOutput(data=b"{}", media_type="application/json")
    assert file.explain(make_invocation()).facts == {"path": str(tmp_path / "link.json"), "max_size": 10}


async def test_missing_single_file_is_not_found(tmp_path: Path, threads: DaemonThreadPool) -> None:
    file = SingleFile(path=str(tmp_path / "no"), uri="x:///y", reader=FileReader(threads=threads, max_size=10))
    with pytest.raises(ResourceNotFoundError) as caught:
        await file.execute(make_invocation())
    assert caught.value.data == {"uri": "x:///y"}


@pytest.mark.parametrize(
    ("globs", "root", "messages"),
    [
        (["../*.md"], "docs", ["files.0: `..` leads outside the root `docs`"]),
        (["*/../../*.md"], None, ["files.0: `..` leads outside the root `.`"]),
        (["/etc/*"], "docs", ["files.0: `/etc/*` must be relative to `root`"]),
        (["no/*.md"], None, ["files: the directory `no` does not exist"]),
        (["*.md"], "no", ["root: the directory `no` does not exist"]),
        ([""], None, ["files.0: expected a path or a glob such as docs/**/*.md"]),
        (["../*"], "no", ["files.0: `..` leads outside the root `no`", "root: the directory `no` does not exist"]),
    ],
)
def test_malformed_glob_is_reported(tmp_path: Path, globs: list[str], root: str | None, messages: list[str]) -> None:
    (tmp_path / "docs").mkdir()
    scope = make_scope(folder=tmp_path)
    assert (
        compile_directory(globs, root=root, problems=scope.problems, dependencies=FileDependencies(), is_listed=True)
        is None
    )
    assert messages_of(scope) == messages


def test_glob_can_start_outside_the_files_directory(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "conf").mkdir()

    def compiled() -> Globs | None:
        problems, dependencies = make_scope(folder=tmp_path / "conf").problems, FileDependencies()
        return compile_directory(
            ["../docs/./x//*.md"], root=None, problems=problems, dependencies=dependencies, is_listed=True
        )

    assert compiled() is None
    (tmp_path / "docs" / "x").mkdir()
    globs = compiled()
    assert globs is not None
    assert globs.root == str(tmp_path / "docs" / "x")
