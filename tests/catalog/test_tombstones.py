"""Removed and renamed primitives are remembered for ten minutes."""

from collections.abc import Callable
from typing import Any

import pytest

from gateway.catalog.catalog import Catalog
from gateway.catalog.tombstones import LIFETIME, MAX_TOMBSTONES, Tombstone, Tombstones
from tests.catalog.conftest import Compile

Tools = Callable[..., Catalog]


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def tombstones(clock: Clock) -> Tombstones:
    return Tombstones(clock=clock)


@pytest.fixture
def tools(compiled: Compile) -> Tools:
    """Return a catalog of tools: `tools(name="description")`."""

    def compile_tools(**described: str) -> Catalog:
        tools: dict[str, Any] = {name: {"description": text, "content": []} for name, text in described.items()}
        return compiled(f"tools: {tools}")

    return compile_tools


def successor(departure: Tombstone | None) -> str | None:
    assert departure is not None
    return departure.now_called


def test_removed_tool_is_remembered_for_ten_minutes(tombstones: Tombstones, clock: Clock, tools: Tools) -> None:
    tombstones.note(tools(a="A", b="B"), tools(b="B"))
    clock.now = LIFETIME.total_seconds() - 1
    assert successor(tombstones.find("tools", "a")) is None
    assert tombstones.find("tools", "b") is None
    assert tombstones.find("prompts", "a") is None
    clock.now = LIFETIME.total_seconds()
    assert tombstones.find("tools", "a") is None


def test_restored_tool_has_no_tombstone(tombstones: Tombstones, tools: Tools) -> None:
    tombstones.note(tools(a="A"), tools())
    tombstones.note(tools(), tools(a="A"))
    assert tombstones.find("tools", "a") is None


def test_tool_with_the_same_description_was_renamed(tombstones: Tombstones, tools: Tools) -> None:
    tombstones.note(tools(a="Looks.", c="C"), tools(b="Looks.", c="C"))
    assert successor(tombstones.find("tools", "a")) == "b"


def test_ambiguous_description_is_not_a_rename(tombstones: Tombstones, tools: Tools) -> None:
    tombstones.note(tools(a="Looks.", b="Looks."), tools(c="Looks."))
    tombstones.note(tools(x="Hears."), tools(y="Hears.", z="Hears."))
    tombstones.note(tools(m=""), tools(n=""))
    assert [successor(tombstones.find("tools", name)) for name in ("a", "b", "x", "m")] == [None] * 4


def test_alias_has_no_tombstone(tombstones: Tombstones, compiled: Compile) -> None:
    old = compiled("tools: {a: {description: D, content: []}}")
    new = compiled("tools: {b: {description: D, content: [], aliases: [a]}}")
    tombstones.note(old, new)
    assert tombstones.find("tools", "a") is None
    tombstones.note(new, compiled("tools: {b: {description: D, content: []}}"))
    assert successor(tombstones.find("tools", "a")) == "b"


def test_removed_template_explains_its_uris(tombstones: Tombstones, compiled: Compile) -> None:
    old = compiled('resources: {item: {uri: "item://{id}", text: "{{ id }}"}, one: {uri: "one:x", text: x}}')
    tombstones.note(old, compiled('resources: {one: {uri: "two:x", text: y, description: Y}}'))
    assert successor(tombstones.find("resources", "item://7")) is None
    assert successor(tombstones.find("resources", "one:x")) is None
    assert tombstones.find("resources", "other://7") is None


def test_number_of_tombstones_is_limited(tombstones: Tombstones, tools: Tools) -> None:
    tombstones.note(tools(**{f"t{number}": "" for number in range(MAX_TOMBSTONES + 1)}), tools())
    assert tombstones.find("tools", "t0") is None
    assert tombstones.find("tools", f"t{MAX_TOMBSTONES}") is not None
