"""A new storage of `files:` only requires the steps in CONTRIBUTING.md. The tests add one that is in memory."""

from collections.abc import MutableMapping, Sequence
from pathlib import Path
from typing import Any, Final, cast

import msgspec
import pytest

from gateway.catalog.compile.context import CompileContext
from gateway.catalog.compile.file_globs import SOURCES
from gateway.config.diagnostics.problems import Problems
from gateway.errors import ConfigError, ExecutionError
from gateway.executors.files.globs import Found, GlobPatterns, GlobSource, Listing, compile_patterns
from gateway.executors.files.regular_files import FileFacts, NotServedError, TooLargeError
from tests.behaviour.inside import product

OBJECTS: Final = {"a.md": b"one", "deep/b.md": b"two", "c.txt": b"three", "broken.md": b""}
CONFIG: Final = """\
resources:
  docs: {files: "memory://bucket/**/*.md", max_size: 100}
  page:
    uri: "page://{name}"
    text: "{{ name }}"
    complete: {name: {files: "memory://bucket/*.md"}}
"""


class Memory(msgspec.Struct, frozen=True):
    root: str
    patterns: GlobPatterns

    def location(self, path: str) -> str:
        return f"{self.root}/{path}"

    def listing(self, *, at_most: int) -> Listing:
        names = [name for name in OBJECTS if self.patterns.matches(name)]
        files = tuple(Found(name, FileFacts(size=len(OBJECTS[name]), modified=0)) for name in names[:at_most])
        return Listing(files=files, is_incomplete=len(names) > at_most, unreadable=(), directories=(), refused=())

    def read(self, path: str, *, max_size: int) -> bytes:
        if path == "broken.md":
            raise ExecutionError("The storage does not respond")
        if path not in OBJECTS:
            raise NotServedError(path)
        if len(OBJECTS[path]) > max_size:
            raise TooLargeError(path)
        return OBJECTS[path]


def compile_memory(globs: Sequence[str], _root: str | None, _problems: Problems, context: CompileContext) -> GlobSource:
    assert context.services.worker_threads is not None
    bucket, pattern = globs[0].removeprefix("memory://").split("/", 1)
    return Memory(f"memory://{bucket}", compile_patterns([pattern]))


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(cast("MutableMapping[str, Any]", SOURCES), "memory", compile_memory)


async def test_objects_are_listed_and_read(tmp_path: Path) -> None:
    async with product(tmp_path, CONFIG) as client:
        listed = (await client.request("resources/list"))["resources"]
        assert [(each["uri"], each["size"]) for each in listed] == [
            ("docs:///a.md", 3),
            ("docs:///deep/b.md", 3),
            ("docs:///broken.md", 0),
        ]
        assert (await client.read("docs:///deep/b.md"))["text"] == "two"


async def test_absent_and_broken_objects_are_errors(tmp_path: Path) -> None:
    async with product(tmp_path, CONFIG) as client:
        for uri in ("docs:///none.md", "docs:///c.txt"):
            assert "not found" in (await client.error("resources/read", {"uri": uri})).message
        assert "does not respond" in (await client.error("resources/read", {"uri": "docs:///broken.md"})).message


async def test_objects_complete_arguments(tmp_path: Path) -> None:
    async with product(tmp_path, CONFIG) as client:
        params = {"ref": {"type": "ref/resource", "uri": "page://{name}"}, "argument": {"name": "name", "value": "a"}}
        assert (await client.request("completion/complete", params))["completion"]["values"] == ["a.md"]


async def test_root_of_an_unknown_storage_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"resources\.docs\.files: `s3://` is not supported\. Use a directory"):
        async with product(tmp_path, CONFIG.replace("memory:", "s3:")):
            pass
