"""Holds the catalog that is served now, and tells who wants to know when another takes its place."""

from collections.abc import Callable

import structlog

from gateway.catalog.primitives import Catalog

Callback = Callable[[Catalog, Catalog], None]
"""Called with the old catalog and the new one, on the event loop's thread; must not block."""

log = structlog.get_logger()


class CatalogStore:
    """One catalog at a time. A request takes `current` once and keeps what it took."""

    def __init__(self, catalog: Catalog) -> None:
        self._current = catalog
        self._subscribers: dict[object, Callback] = {}

    @property
    def current(self) -> Catalog:
        return self._current

    def swap(self, catalog: Catalog) -> None:
        """Serve `catalog` from now on, then tell the subscribers."""
        old, self._current = self._current, catalog
        for callback in tuple(self._subscribers.values()):
            try:
                callback(old, catalog)
            except Exception:  # Boundary: the swap has happened; one subscriber's bug may not hide it from the others.
                log.exception("catalog subscriber raised", generation=catalog.generation)

    def subscribe(self, callback: Callback) -> Callable[[], None]:
        """Have `callback` called after each swap, until the function that is returned is called."""
        key = object()
        self._subscribers[key] = callback

        def unsubscribe() -> None:
            self._subscribers.pop(key, None)

        return unsubscribe
