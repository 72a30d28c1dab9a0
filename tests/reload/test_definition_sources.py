"""Tests for definition sources."""

import asyncio
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from gateway.config.definition_source import SourceEntry, load_definitions
from gateway.config.diagnostics.problems import Problems
from gateway.config.loader import LOCK_NAME, LoadedConfig
from gateway.config.models.definitions import Resource, Tool
from gateway.config.models.document import Document
from gateway.config.reading.source_map import SourceDefinition
from gateway.errors import ConfigError
from gateway.json_types import JsonObject
from gateway.reload.pipeline import ReloadPipeline
from gateway.reload.reloader import Reloader
from tests.reload.pipelines import opened
from tests.waiting import until

FILE = """\
tools:
  own: {description: Of the file., content: [hi], aliases: [former]}
connections:
  first: {base_url: https://one.example.com}
  second: {base_url: https://two.example.com}
"""


class Servers:
    """A source with an entry per connection, and the given tools for each entry."""

    def __init__(self, **tools: JsonObject) -> None:
        self.tools = {name: dict(each) for name, each in tools.items()}
        self.resources: dict[str, JsonObject] = {}
        self.followed: list[list[str]] = []
        self.changed: Callable[[], None] = lambda: None

    def definitions(self, config: LoadedConfig, problems: Problems) -> Iterator[SourceEntry]:
        for name in config.document.connections:
            place = ("connections", name)
            if "refuse" in self.tools.get(name, {}):
                problems.at(*place).error("cannot be right")
            tools = {
                ("tools", key): SourceDefinition(config=Tool.model_validate(said), path=place, written=said)
                for key, said in self.tools.get(name, {}).items()
            }
            resources = {
                ("resources", key): SourceDefinition(config=Resource.model_validate(said), path=place, written=said)
                for key, said in self.resources.items()
            }
            yield SourceEntry(definitions={**tools, **resources}, fingerprint=str(tools))

    async def follow(self, document: Document, changed: Callable[[], None]) -> None:
        self.followed.append(list(document.connections))
        self.changed = changed


def says(text: str) -> JsonObject:
    return {"description": f"{text}.", "content": [text]}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "config.yaml").write_text(FILE)
    return tmp_path / "config.yaml"


def warnings(pipeline: ReloadPipeline) -> list[str]:
    return [str(problem) for problem in pipeline.store.current.warnings]


async def test_own_definitions_precede_generated_ones(path: Path) -> None:
    servers = Servers(second={"a": says("Second")}, first={"z": says("First"), "b": says("First")})
    async with opened(path, sources=[servers]) as pipeline:
        assert list(pipeline.store.current.tools) == ["own", "z", "b", "a"]
        assert warnings(pipeline) == []


async def test_duplicate_name_is_omitted_and_both_locations_are_named(path: Path) -> None:
    def twice(place: str, position: str) -> str:
        return f"`{place}` ({path}:{position}) already has that name"

    servers = Servers(first={"own": says("First"), "a": says("First")}, second={"a": says("Second")})
    async with opened(path, sources=[servers]) as pipeline:
        offered = pipeline.store.current.tools
        assert [offered[name].definition["description"] for name in ("own", "a")] == ["Of the file.", "First."]
        assert warnings(pipeline) == [
            f"{path}:4:10: connections.first: the tool `own` is not offered: {twice('tools.own', '2:8')}",
            f"{path}:5:11: connections.second: the tool `a` is not offered: {twice('connections.first', '4:10')}",
        ]


async def test_only_the_invalid_generated_definition_is_omitted(path: Path) -> None:
    broken = {"description": "Wrong.", "content": ["{{ nothing }}"]}
    servers = Servers(first={"broken": broken, "right": says("First")})
    async with opened(path, sources=[servers]) as pipeline:
        catalog = pipeline.store.current
        assert list(catalog.tools) == ["own", "right"]
        assert [(each.kind, each.name) for each in catalog.left_out] == [("tools", "broken")]
        (warning,) = warnings(pipeline)
        assert warning.startswith(f"{path}:4:10: tools.broken.content.0.text: `nothing` is not an input")


async def test_duplicate_resource_uris_do_not_reject_the_file(path: Path) -> None:
    servers = Servers()
    servers.resources = {name: {"uri": "test://same", "text": name} for name in ("one", "two")}
    path.write_text(FILE.replace("  second: {base_url: https://two.example.com}\n", ""))
    async with opened(path, sources=[servers]) as pipeline:
        catalog = pipeline.store.current
        assert {uri: each.name for uri, each in catalog.resources.items()} == {"test://same": "one"}
        assert [each.name for each in catalog.left_out] == ["two"]


async def test_generated_name_overrides_an_alias(path: Path) -> None:
    servers = Servers(first={"former": says("First")})
    async with opened(path, sources=[servers]) as pipeline:
        found = pipeline.store.current.tool("former")
        assert found is not None
        assert found.name == "former"


async def test_invalid_source_settings_reject_the_file(path: Path) -> None:
    servers = Servers(first={"refuse": says("No")})
    with pytest.raises(ConfigError, match=r"config\.yaml:4:10: connections\.first: cannot be right"):
        async with opened(path, sources=[servers]):
            pass


async def test_lock_and_digest_cover_generated_definitions(path: Path) -> None:
    servers = Servers(first={"a": says("One")})
    async with opened(path, sources=[servers]) as pipeline:
        pins, digest = dict(pipeline.served.catalog.pins), pipeline.served.digest
        again = await pipeline.load_and_compile()
        assert (again.catalog.pins, again.digest) == (pins, digest)
        servers.tools["first"]["a"] = says("Another")
        changed = await pipeline.load_and_compile()
    assert changed.digest != digest
    assert {name for name in pins if pins[name] != changed.catalog.pins[name]} == {("tools", "a")}
    assert not (path.parent / LOCK_NAME).exists()


async def test_source_follows_the_served_document(path: Path) -> None:
    servers = Servers()
    async with opened(path, sources=[servers]) as pipeline:
        path.write_text(FILE.replace("second", "third"))
        candidate = await pipeline.load_and_compile()
        assert servers.followed == [["first", "second"]], "nothing is served yet"
        pipeline.swap(candidate)
        await until(lambda: len(servers.followed) >= 2)
    assert servers.followed[1] == ["first", "third"]


async def test_changed_source_only_announces_changed_lists(path: Path) -> None:
    servers = Servers(first={"a": says("One")})
    announced: asyncio.Queue[tuple[list[str], bool]] = asyncio.Queue()
    async with opened(path, sources=[servers]) as pipeline:
        reloader = Reloader(pipeline, poll=timedelta(0), loaded_at=0)
        pipeline.store.subscribe(
            lambda old, new: announced.put_nowait((list(new.tools), old.fingerprints == new.fingerprints))
        )
        running = asyncio.create_task(reloader.run_for_sources())
        try:
            servers.tools["second"] = {"b": says("Two")}
            servers.changed()
            async with asyncio.timeout(10):
                assert await announced.get() == (["own", "a", "b"], False)
            servers.changed()
            async with asyncio.timeout(10):
                assert await announced.get() == (["own", "a", "b"], True)
        finally:
            running.cancel()


def test_every_command_can_load_with_sources(path: Path) -> None:
    loaded = load_definitions(path, [Servers(first={"a": says("One")})])
    assert list(loaded.document.tools) == ["own", "a"]
    assert load_definitions(path).document.tools.keys() == {"own"}
