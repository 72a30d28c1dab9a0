"""The catalog store: swaps, announcements, and disabled primitives."""

from datetime import timedelta

import pytest

from gateway.catalog.catalog import Catalog
from gateway.catalog.primitives import Prompt
from gateway.catalog.store import CatalogStore
from gateway.config.secrets.redactor import Redactor
from gateway.errors import ExecutionError
from gateway.executors.invocation import Blocks, Explanation


class NoExecutor:
    def explain(self, _invocation: object) -> Explanation:
        raise NotImplementedError

    async def execute(self, _invocation: object) -> Blocks:
        return Blocks(content=())


async def no_messages(_outcome: object, _invocation: object) -> Blocks:
    return Blocks(content=())


def prompt(name: str) -> Prompt:
    return Prompt(
        name=name,
        definition={"name": name},
        timeout=timedelta(seconds=1),
        concurrency=1,
        queue=1,
        arguments={},
        executor=NoExecutor(),
        messages=no_messages,
    )


def catalog(generation: int, *prompts: str) -> Catalog:
    return Catalog(
        prompts={name: prompt(name) for name in prompts},
        generation=generation,
        server_info={"name": "s", "version": "1"},
        instructions=None,
        page_size=10,
        cache_ttl=timedelta(0),
        redactor=Redactor(),
    )


def serve(store: CatalogStore, catalog: Catalog) -> None:
    store.swap(catalog)
    store.announce()


def test_swap_is_visible_and_announced() -> None:
    old, new = catalog(1), catalog(2)
    store = CatalogStore(old)
    seen: list[tuple[Catalog, Catalog, Catalog]] = []
    store.subscribe(lambda before, after: seen.append((before, after, store.current)))
    serve(store, new)
    assert store.current is new
    assert seen == [(old, new, new)]


def test_late_announcement_covers_all_swaps() -> None:
    first, last = catalog(1), catalog(3)
    store = CatalogStore(first)
    heard: list[tuple[Catalog, Catalog]] = []
    store.subscribe(lambda before, after: heard.append((before, after)))
    store.swap(catalog(2))
    store.swap(last)
    assert heard == []
    store.announce()
    store.announce()
    assert heard == [(first, last)]


def test_raising_subscriber_does_not_stop_others() -> None:
    store = CatalogStore(catalog(1))
    heard: list[int] = []

    def fail(_before: Catalog, _after: Catalog) -> None:
        raise ValueError

    store.subscribe(fail)
    store.subscribe(lambda _, after: heard.append(after.generation))
    serve(store, catalog(2))
    assert heard == [2]


def test_stale_prepared_swap_is_prepared_again() -> None:
    store = CatalogStore(catalog(7))
    store.swap(catalog(3))
    assert store.current.generation == 8


def test_disabled_primitive_stays_disabled_across_reloads() -> None:
    store = CatalogStore(catalog(1, "a", "b"))
    before = store.current.fingerprints
    store.disable("prompts", "a")
    assert list(store.current.prompts) == ["b"]
    assert store.current.fingerprints != before
    store.swap(catalog(2, "a", "b", "c"))
    assert list(store.current.prompts) == ["b", "c"]
    store.swap(catalog(2, "b"))
    store.swap(catalog(2, "a", "b"))
    assert list(store.current.prompts) == ["a", "b"]


def test_enabled_primitive_returns_to_its_position() -> None:
    store = CatalogStore(catalog(1, "a", "b"))
    store.disable("prompts", "a")
    store.enable("prompts", "a")
    assert list(store.current.prompts) == ["a", "b"]


def test_disabling_unknown_primitive_is_an_error() -> None:
    store = CatalogStore(catalog(1, "a"))
    heard: list[int] = []
    store.subscribe(lambda _, after: heard.append(after.generation))
    store.disable("prompts", "a")
    store.disable("prompts", "a")
    assert heard == [2]
    with pytest.raises(ExecutionError, match="`prompts` has no definition named 'x'"):
        store.disable("prompts", "x")
