"""Whoever asks for what a reload took away hears of it for ten minutes."""

from collections.abc import Callable
from typing import Any

import pytest

from gateway.catalog.departed import MOST, REMEMBERED, Departed, Departure
from gateway.catalog.primitives import Catalog
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
def departed(clock: Clock) -> Departed:
    return Departed(clock=clock)


@pytest.fixture
def tools(compiled: Compile) -> Tools:
    """A catalog of tools: `tools(name="description")`."""

    def compile_tools(**described: str) -> Catalog:
        tools: dict[str, Any] = {name: {"description": text, "content": []} for name, text in described.items()}
        return compiled(f"tools: {tools}")

    return compile_tools


def successor(departure: Departure | None) -> str | None:
    assert departure is not None
    return departure.now_called


def test_a_tool_that_went_is_known_for_ten_minutes(departed: Departed, clock: Clock, tools: Tools) -> None:
    departed.note(tools(a="A", b="B"), tools(b="B"))
    clock.now = REMEMBERED.total_seconds() - 1
    assert successor(departed.find("tools", "a")) is None
    assert departed.find("tools", "b") is None
    assert departed.find("prompts", "a") is None
    clock.now = REMEMBERED.total_seconds()
    assert departed.find("tools", "a") is None


def test_what_comes_back_has_not_gone(departed: Departed, tools: Tools) -> None:
    departed.note(tools(a="A"), tools())
    departed.note(tools(), tools(a="A"))
    assert departed.find("tools", "a") is None


def test_a_tool_with_another_name_and_the_same_words_was_renamed(departed: Departed, tools: Tools) -> None:
    departed.note(tools(a="Looks.", c="C"), tools(b="Looks.", c="C"))
    assert successor(departed.find("tools", "a")) == "b"


def test_words_that_fit_several_tell_nothing(departed: Departed, tools: Tools) -> None:
    departed.note(tools(a="Looks.", b="Looks."), tools(c="Looks."))
    departed.note(tools(x="Hears."), tools(y="Hears.", z="Hears."))
    departed.note(tools(m=""), tools(n=""))
    assert [successor(departed.find("tools", name)) for name in ("a", "b", "x", "m")] == [None] * 4


def test_an_old_name_that_stays_as_an_alias_has_not_gone(departed: Departed, compiled: Compile) -> None:
    old = compiled("tools: {a: {description: D, content: []}}")
    new = compiled("tools: {b: {description: D, content: [], aliases: [a]}}")
    departed.note(old, new)
    assert departed.find("tools", "a") is None
    departed.note(new, compiled("tools: {b: {description: D, content: []}}"))
    assert successor(departed.find("tools", "a")) == "b"


def test_a_uri_that_a_template_served_is_known_with_the_template(departed: Departed, compiled: Compile) -> None:
    old = compiled('resources: {item: {uri: "item://{id}", text: "{{ id }}"}, one: {uri: "one:x", text: x}}')
    departed.note(old, compiled('resources: {one: {uri: "two:x", text: y, description: Y}}'))
    assert successor(departed.find("resources", "item://7")) is None
    assert successor(departed.find("resources", "one:x")) is None
    assert departed.find("resources", "other://7") is None


def test_only_so_many_are_remembered(departed: Departed, tools: Tools) -> None:
    departed.note(tools(**{f"t{number}": "" for number in range(MOST + 1)}), tools())
    assert departed.find("tools", "t0") is None
    assert departed.find("tools", f"t{MOST}") is not None
