"""Locked definitions of upstreams are bound to the reviewed server."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import pytest

from gateway.catalog.compile.compiler import compile_catalog
from gateway.catalog.digests import DefinitionDigest, Name, locked_owners
from gateway.catalog.lock import Lock, differences
from gateway.catalog.plugins import Plugins
from gateway.config.definition_source import NO_OWNERS, SourceEntry, merge
from gateway.config.diagnostics.problems import Problems
from gateway.config.loader import LOCK_NAME, LoadedConfig, load
from gateway.config.models.definitions import Tool
from gateway.config.models.document import Document
from gateway.config.reading.source_map import SourceDefinition
from gateway.executors.shared_services import Services
from gateway.json_types import DocumentPath

TOOL = Tool.model_validate({"description": "Pays.", "content": "paid"})


class Offers:
    """Implements `DefinitionSource`: the same tool from each of several entries."""

    def __init__(self, *entries: str) -> None:
        self.entries = entries

    def definitions(self, config: LoadedConfig, problems: Problems) -> Iterable[SourceEntry]:
        del config, problems
        for name in self.entries:
            made = SourceDefinition(path=("upstreams", name), written={"name": "pay"}, config=TOOL)
            yield SourceEntry(definitions={("tools", "pay"): made}, fingerprint=name)

    async def follow(self, document: Document, changed: Callable[[], None]) -> None:
        """Do nothing."""


def loaded(
    folder: Path, text: str, *entries: str, owners: Mapping[DocumentPath, DocumentPath] = NO_OWNERS
) -> LoadedConfig:
    (folder / "config.yaml").write_text(text)
    config = load(folder / "config.yaml", environ={"TOKEN": "x"})
    return merge(config, [Offers(*entries)], owners=owners)


def pins(config: LoadedConfig, services: Services) -> Mapping[Name, DefinitionDigest]:
    plugins = Plugins()
    try:
        return compile_catalog(config, services=services, plugins=plugins, generation=1).pins
    finally:
        plugins.close()


@pytest.mark.parametrize(
    ("now", "differs"),
    [
        ("b: {command: [python3, s.py], args: [a], env: {A: other}, prefix: ''}", False),
        ("b: {command: [python3, s.py], args: [a], env: {A: '${env:TOKEN}'}, timeout: 5s}", False),
        ("b: {command: [python3, t.py], args: [a], env: {A: x}}", True),
        ("b: {command: [python3, s.py], args: [b], env: {A: x}}", True),
        ("b: {command: [python3, s.py], args: [a], env: {A: x, B: x}}", True),
        ("b: {command: [python3, s.py], args: [a], env: {A: x}, cwd: sub}", True),
        ("b: {url: 'https://b.example'}", True),
        ("c: {command: [python3, s.py], args: [a], env: {A: x}}", True),
    ],
)
def test_origin_of_a_definition_is_pinned(services: Services, tmp_path: Path, now: str, *, differs: bool) -> None:
    before = "upstreams:\n  b: {command: [python3, s.py], args: [a], env: {A: x}}\n"
    locked = pins(loaded(tmp_path, before, "b"), services)
    found = differences(pins(loaded(tmp_path, f"upstreams:\n  {now}\n", now[0]), services), locked)
    assert [(each.name, each.parts) for each in found] == ([(("tools", "pay"), ("origin",))] if differs else [])


def test_changed_base_url_is_another_origin(services: Services, tmp_path: Path) -> None:
    text = "connections: {c: {base_url: 'https://%s.example'}}\nupstreams: {b: {connection: c}}\n"
    locked = pins(loaded(tmp_path, text % "one", "b"), services)
    [found] = differences(pins(loaded(tmp_path, text % "two", "b"), services), locked)
    assert found.parts == ("origin",)


def test_name_stays_with_its_owner_until_released(tmp_path: Path) -> None:
    text = "upstreams: {a: {command: a}, b: {command: b}}"
    first = loaded(tmp_path, text, "b")
    second = loaded(tmp_path, text, "a", "b", owners=first.owners)
    assert second.origins["tools", "pay"].path == ("upstreams", "b")
    assert [each.path for each in second.problems] == ["upstreams.a"]
    third = loaded(tmp_path, text, "a", owners=second.owners)
    assert third.origins["tools", "pay"].path == ("upstreams", "a")
    fourth = loaded(tmp_path, text, "a", "b", owners=third.owners)
    assert fourth.origins["tools", "pay"].path == ("upstreams", "a")
    assert fourth.claims == {(("tools", "pay"), ("upstreams", "b"))}


def test_claim_of_another_entry_differs_from_the_lock(services: Services, tmp_path: Path) -> None:
    text = "server: {lock: enforce}\nupstreams: {a: {command: a}, b: {command: b}}"
    locked = Lock(path=tmp_path / LOCK_NAME, pins=pins(loaded(tmp_path, text[24:], "b"), services))
    claimed = loaded(tmp_path, text, "a", "b", owners=locked_owners(loaded(tmp_path, text), locked.pins))
    assert compiled(claimed, services, locked) == (["pay"], ["claims.tools.pay by upstreams.a was added"])
    taken = loaded(tmp_path, text, "a")
    assert compiled(taken, services, locked) == ([], ["tools.pay was changed (origin)"])
    both = Lock(path=locked.path, pins=pins(loaded(tmp_path, text[24:], "b", "a"), services))
    assert compiled(loaded(tmp_path, text, "b"), services, both) == (["pay"], [])


def compiled(config: LoadedConfig, services: Services, lock: Lock) -> tuple[list[str], list[str]]:
    """Compile a catalog, and return its tools and their differences from the lock."""
    plugins = Plugins()
    catalog = compile_catalog(config, services=services, plugins=plugins, generation=1, lock=lock)
    plugins.close()
    return [*catalog.tools], [str(each).partition(" since")[0] for each in catalog.lock_differences]


def test_locked_owner_is_the_entry_with_the_locked_origin(services: Services, tmp_path: Path) -> None:
    text = "upstreams: {a: {command: a}, b: {command: b}}"
    locked = pins(loaded(tmp_path, text, "b"), services)
    assert locked_owners(loaded(tmp_path, text), locked) == {("tools", "pay"): ("upstreams", "b")}
    assert not locked_owners(loaded(tmp_path, text.replace("command: b", "command: c")), locked)
    assert not locked_owners(loaded(tmp_path, text), None)


def test_instructions_of_views_and_pages_of_tools_are_pinned(services: Services, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text("<p>one</p>")
    text = """\
tools: {t: {description: T, content: x, app: {file: page.html}}}
views: {v: {include: {tools: [t]}, instructions: %s}}
"""
    locked = pins(loaded(tmp_path, text % "One."), services)
    page.write_text("<p>two</p>")
    found = differences(pins(loaded(tmp_path, text % "Two."), services), locked)
    assert [(each.name[1], each.parts) for each in found] == [
        ("instructions of the view v", ("definition",)),
        ("t", ("page",)),
    ]
    enforced = loaded(tmp_path, f"server: {{lock: enforce}}\n{text % 'Two.'}")
    plugins, lock = Plugins(), Lock(path=tmp_path / LOCK_NAME, pins=locked)
    catalog = compile_catalog(enforced, services=services, plugins=plugins, generation=1, lock=lock)
    plugins.close()
    assert (catalog.views["v"].instructions, [*catalog.tools]) == (None, [])
