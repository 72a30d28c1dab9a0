"""Holds the catalog that is served now, and tells who wants to know when another takes its place."""

import time
from collections.abc import Callable
from typing import Final

import msgspec
import structlog
from msgspec.structs import replace

from gateway.catalog.catalog import Catalog
from gateway.catalog.tombstones import Tombstones, TombstonesByName
from gateway.errors import ExecutionError
from gateway.plugin import ListKind

Callback = Callable[[Catalog, Catalog], None]
"""Called with the old catalog and the new one, on the event loop's thread; must not block."""

Disabled = frozenset[tuple[ListKind, str]]
"""Primitives that plugins switched off: kinds, and names as they are in the file."""

log: Final = structlog.get_logger()


class Succession(msgspec.Struct, frozen=True, kw_only=True):
    """A swap that has been prepared."""

    old: Catalog
    """The catalog to be replaced."""
    whole: Catalog
    offered: Catalog
    """The catalog without what is disabled."""
    disabled: Disabled
    gone: TombstonesByName


class CatalogStore:
    """Holds one catalog at a time. A request takes `current` once, and uses that one to its end."""

    def __init__(self, catalog: Catalog, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.tombstones: Final = Tombstones(clock=clock)
        self._whole = catalog
        """The catalog of the files, with the primitives that plugins have switched off."""
        self._disabled: Disabled = frozenset()
        self._current = catalog
        self._announced = catalog
        """The catalog that the subscribers know."""
        self._subscribers: Final[list[Callback]] = []

    @property
    def current(self) -> Catalog:
        return self._current

    @property
    def disabled(self) -> Disabled:
        """The primitives that plugins have switched off, by kind and name."""
        return self._disabled

    def prepare(self, catalog: Catalog) -> Succession:
        """Do the part of a swap to `catalog` that need not be done on the loop's thread."""
        old, disabled = self._current, _pruned(catalog, self._disabled)
        offered = _without(catalog, disabled)
        return Succession(
            old=old, whole=catalog, offered=offered, disabled=disabled, gone=self.tombstones.gone(old, offered)
        )

    def swap(self, catalog: Catalog, *, prepared: Succession | None = None) -> None:
        """Serve `catalog` from now on, but for what was disabled. Subscribers hear of it with `announce`.

        Its generation becomes the current one's successor, whatever else was swapped while it was compiled; then what
        was prepared is prepared anew.
        """
        # It was prepared in a thread: meanwhile another swap, or a plugin that switched something off, may have come.
        if prepared is None or prepared.whole is not catalog or prepared.old is not self._current:
            prepared = self.prepare(catalog)
        self._whole, self._disabled = catalog, prepared.disabled
        # The one assignment by which requests see another catalog; all that can fail is done.
        self._serve(prepared.offered)
        self.tombstones.note(prepared.old, self._current, gone=prepared.gone)

    def announce(self) -> None:
        """Tell the subscribers what has taken the place of the catalog that they know."""
        old, new = self._announced, self._current
        self._announced = new
        if old is new:
            return
        for callback in self._subscribers:
            try:
                callback(old, new)
            except Exception:  # Boundary: the swap has happened; one subscriber's bug may not hide it from the others.
                log.exception("catalog subscriber raised", generation=new.generation)

    def disable(self, kind: ListKind, name: str) -> None:
        """Take a primitive off the lists, across reloads, until it is enabled.

        Raises:
            ExecutionError: the file has no such definition.
        """
        _check_name(self._whole, kind, name)
        self._set_disabled(self._disabled | {(kind, name)})

    def enable(self, kind: ListKind, name: str) -> None:
        """Put a disabled primitive back.

        Raises:
            ExecutionError: the file has no such definition.
        """
        _check_name(self._whole, kind, name)
        self._set_disabled(self._disabled - {(kind, name)})

    def subscribe(self, callback: Callback) -> None:
        """Have `callback` called with each announcement."""
        self._subscribers.append(callback)

    def _set_disabled(self, disabled: Disabled) -> None:
        if disabled != self._disabled:
            self._disabled = disabled
            self._serve(_without(self._whole, disabled))
            self.announce()

    def _serve(self, catalog: Catalog) -> None:
        # Each swap has its own, and a greater one: `CallerCatalogs` keeps parts by it.
        generation = self._current.generation + 1
        self._current = catalog if catalog.generation == generation else replace(catalog, generation=generation)


def _check_name(catalog: Catalog, kind: ListKind, name: str) -> None:
    """Refuse a name that the file does not define.

    Raises:
        ExecutionError: the file has no such definition.
    """
    if (kind, name) not in _names(catalog):
        raise ExecutionError(f"There is no {name!r} among the {kind}")


def _pruned(catalog: Catalog, disabled: Disabled) -> Disabled:
    """The part of `disabled` that this catalog has; what is gone from the file need not be remembered."""
    return disabled and disabled & _names(catalog)


def _without(catalog: Catalog, disabled: Disabled) -> Catalog:
    return catalog.where(lambda each: (each.kind, each.name) not in disabled) if disabled else catalog


def _names(catalog: Catalog) -> Disabled:
    return frozenset((each.kind, each.name) for each in catalog.primitives())
