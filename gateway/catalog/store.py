"""Holds the catalog that is served now, and tells who wants to know when another takes its place."""

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Final

import msgspec
import structlog

from gateway.catalog import disabled as overlay
from gateway.catalog.primitives import Catalog
from gateway.catalog.tombstones import Tombstones, TombstonesByName
from gateway.plugin import ListKind

Callback = Callable[[Catalog, Catalog], None]
"""Called with the old catalog and the new one, on the event loop's thread; must not block."""

log: Final = structlog.get_logger()


class Succession(msgspec.Struct, frozen=True, kw_only=True):
    """A swap that has been prepared."""

    old: Catalog
    """The catalog to be replaced."""
    whole: Catalog
    offered: Catalog
    """The catalog without what is disabled."""
    disabled: overlay.Disabled
    gone: TombstonesByName


class CatalogStore:
    """Holds one catalog at a time. A request takes `current` once, and uses that one to its end."""

    def __init__(self, catalog: Catalog, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.tombstones: Final = Tombstones(clock=clock)
        self._whole = catalog
        """The catalog of the files, with the primitives that plugins have switched off."""
        self._disabled: overlay.Disabled = frozenset()
        self._current = catalog
        self._announced = catalog
        """The catalog that the subscribers know."""
        self._subscribers: dict[object, Callback] = {}

    @property
    def current(self) -> Catalog:
        return self._current

    @property
    def disabled(self) -> overlay.Disabled:
        """The primitives that plugins have switched off, by kind and name."""
        return self._disabled

    def prepare(self, catalog: Catalog) -> Succession:
        """Do the part of a swap to `catalog` that need not be done on the loop's thread."""
        old, disabled = self._current, overlay.prune_disabled(catalog, self._disabled)
        offered = overlay.apply_disabled(catalog, disabled)
        return Succession(
            old=old, whole=catalog, offered=offered, disabled=disabled, gone=self.tombstones.gone(old, offered)
        )

    def swap(self, catalog: Catalog, *, prepared: Succession | None = None) -> None:
        """Serve `catalog` from now on, but for what was disabled. Subscribers hear of it with `announce`.

        Its generation becomes the current one's successor, whatever else was swapped while it was compiled; then what
        was prepared is prepared anew.
        """
        if prepared is None or prepared.whole is not catalog or prepared.old is not self._current:
            prepared = self.prepare(catalog)
        self._whole, self._disabled = catalog, prepared.disabled
        self._serve(prepared.offered)
        self.tombstones.note(prepared.old, self._current, gone=prepared.gone)

    def announce(self) -> None:
        """Tell the subscribers what has taken the place of the catalog that they know."""
        old, new = self._announced, self._current
        self._announced = new
        if old is new:
            return
        for callback in tuple(self._subscribers.values()):
            try:
                callback(old, new)
            except Exception:  # Boundary: the swap has happened; one subscriber's bug may not hide it from the others.
                log.exception("catalog subscriber raised", generation=new.generation)

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
        """Have `callback` called with each announcement, until the function that is returned is called."""
        key = object()
        self._subscribers[key] = callback

        def unsubscribe() -> None:
            self._subscribers.pop(key, None)

        return unsubscribe

    def _set_disabled(self, disabled: overlay.Disabled) -> None:
        if disabled != self._disabled:
            self._disabled = disabled
            self._serve(overlay.apply_disabled(self._whole, disabled))
            self.announce()

    def _serve(self, catalog: Catalog) -> None:
        generation = self._current.generation + 1
        self._current = catalog if catalog.generation == generation else replace(catalog, generation=generation)
