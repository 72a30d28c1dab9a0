"""One catalog at a time, and who is told."""

from datetime import timedelta

from gateway.catalog.primitives import Catalog
from gateway.catalog.store import CatalogStore
from gateway.config.secrets import Redactor


def catalog(generation: int) -> Catalog:
    return Catalog(
        generation=generation,
        server_info={"name": "s", "version": "1"},
        instructions=None,
        page_size=10,
        cache_ttl=timedelta(0),
        redactor=Redactor(),
    )


def test_a_swap_is_seen_by_who_asks_and_told_to_who_subscribed() -> None:
    old, new = catalog(1), catalog(2)
    store = CatalogStore(old)
    seen: list[tuple[Catalog, Catalog, Catalog]] = []
    store.subscribe(lambda before, after: seen.append((before, after, store.current)))
    store.swap(new)
    assert store.current is new
    assert seen == [(old, new, new)]


def test_who_unsubscribed_hears_no_more_and_may_do_so_twice() -> None:
    store = CatalogStore(catalog(1))
    heard: list[int] = []

    def hear(_: Catalog, after: Catalog) -> None:
        heard.append(after.generation)

    leave, _ = store.subscribe(hear), store.subscribe(hear)
    leave()
    leave()
    store.swap(catalog(2))
    assert heard == [2]


def test_a_subscriber_that_raises_keeps_the_swap_from_nobody() -> None:
    store = CatalogStore(catalog(1))
    heard: list[int] = []

    def fail(_before: Catalog, _after: Catalog) -> None:
        raise ValueError

    store.subscribe(fail)
    store.subscribe(lambda _, after: heard.append(after.generation))
    store.swap(catalog(2))
    assert heard == [2]


def test_a_subscriber_may_leave_while_it_is_told() -> None:
    store = CatalogStore(catalog(1))
    heard: list[int] = []

    def once(_: Catalog, after: Catalog) -> None:
        heard.append(after.generation)
        leave()

    leave = store.subscribe(once)
    store.swap(catalog(2))
    store.swap(catalog(3))
    assert heard == [2]
