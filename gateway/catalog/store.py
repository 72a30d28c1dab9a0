"""Holds the catalog that is served now, and tells who wants to know when another takes its place."""

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Final

import structlog

from gateway.catalog import overlay
from gateway.catalog.departed import Departed
from gateway.catalog.primitives import Catalog
from gateway.plugin import ListKind

Callback = Callable[[Catalog, Catalog], None]
"""Called with the old catalog and the new one, on the event loop's thread; must not block."""

log: Final = structlog.get_logger()


class CatalogStore:
    """One catalog at a time. A request takes `current` once and keeps what it took."""

    def __init__(self, catalog: Catalog, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.departed: Final = Departed(clock=clock)
        self._whole = catalog
        """What the files say, with what plugins have switched off."""
        self._disabled: overlay.Disabled = frozenset()
        self._current = catalog
        self._subscribers: dict[object, Callback] = {}

    @property
    def current(self) -> Catalog:
        return self._current

    def swap(self, catalog: Catalog) -> None:
        """Serve `catalog` from now on, but for what was disabled, then tell the subscribers.

        Its generation becomes the current one's successor, whatever else was swapped while it was compiled.
        """
        old = self._current
        self._whole = catalog
        self._disabled = overlay.still_named(catalog, self._disabled)
        self._publish()
        self.departed.note(old, self._current)

    def disable(self, kind: ListKind, name: str) -> None:
        """Take a primitive off the lists, across reloads, until it is enabled.

        Raises:
            ExecutionError: the file has no such definition.
        """
        overlay.check_name(self._whole, kind, name)
        self._set_disabled(self._disabled | {(kind, name)})

    def enable(self, kind: ListKind, name: str) -> None:
        """Put a disabled primitive back.

        Raises:
            ExecutionError: the file has no such definition.
        """
        overlay.check_name(self._whole, kind, name)
        self._set_disabled(self._disabled - {(kind, name)})

    def subscribe(self, callback: Callback) -> Callable[[], None]:
        """Have `callback` called after each swap, until the function that is returned is called."""
        key = object()
        self._subscribers[key] = callback

        def unsubscribe() -> None:
            self._subscribers.pop(key, None)

        return unsubscribe

    def _set_disabled(self, disabled: overlay.Disabled) -> None:
        if disabled != self._disabled:
            self._disabled = disabled
            self._publish()

    def _publish(self) -> None:
        old = self._current
        catalog = overlay.without(self._whole, self._disabled)
        if catalog.generation != old.generation + 1:
            catalog = replace(catalog, generation=old.generation + 1)
        self._current = catalog
        for callback in tuple(self._subscribers.values()):
            try:
                callback(old, catalog)
            except Exception:  # Boundary: the swap has happened; one subscriber's bug may not hide it from the others.
                log.exception("catalog subscriber raised", generation=catalog.generation)
