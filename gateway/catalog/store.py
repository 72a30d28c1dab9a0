"""Holds the served catalog, and notifies subscribers when the catalog is replaced."""

from collections.abc import Callable
from typing import Final

import structlog
from msgspec.structs import replace

from gateway.catalog.catalog import Catalog
from gateway.errors import ExecutionError
from gateway.plugin import ListKind

Callback = Callable[[Catalog, Catalog], None]
"""Function that is called on the event loop with the old and the new catalog, and must not block."""

Disabled = frozenset[tuple[ListKind, str]]
"""Kind and name of each primitive that a plugin has disabled."""

log: Final = structlog.get_logger(__name__)


class CatalogStore:
    """Holds the current catalog. Each request reads `current` once, and uses this catalog until the request ends."""

    def __init__(self, catalog: Catalog) -> None:
        self._whole = catalog
        """The compiled catalog, including disabled primitives."""
        self._disabled: Disabled = frozenset()
        self._current = catalog
        self._announced = catalog
        self._subscribers: Final[list[Callback]] = []

    @property
    def current(self) -> Catalog:
        return self._current

    @property
    def disabled(self) -> Disabled:
        return self._disabled

    def swap(self, catalog: Catalog) -> None:
        """Serve `catalog` without the disabled primitives, and increase `generation`. Call `announce` afterwards."""
        disabled = self._disabled and self._disabled & _names(catalog)
        offered = _without(catalog, disabled)
        # Nothing can fail from here on. The assignments make the new catalog visible.
        self._whole, self._disabled = catalog, disabled
        self._serve(offered)

    def announce(self) -> None:
        """Notify subscribers of all changes since the last announcement."""
        old, new = self._announced, self._current
        self._announced = new
        if old is new:
            return
        for callback in self._subscribers:
            try:
                callback(old, new)
            except Exception:  # Boundary: an error in one subscriber must not stop the others.
                log.exception("catalog subscriber raised", generation=new.generation)

    def disable(self, kind: ListKind, name: str) -> None:
        """Hide a primitive until `enable`, even across reloads. Raise ExecutionError if the primitive is unknown."""
        _check_name(self._whole, kind, name)
        self._set_disabled(self._disabled | {(kind, name)})

    def enable(self, kind: ListKind, name: str) -> None:
        """Show a disabled primitive again. Raise ExecutionError if the primitive is unknown."""
        _check_name(self._whole, kind, name)
        self._set_disabled(self._disabled - {(kind, name)})

    def subscribe(self, callback: Callback) -> None:
        self._subscribers.append(callback)

    def _set_disabled(self, disabled: Disabled) -> None:
        if disabled != self._disabled:
            self._disabled = disabled
            self._serve(_without(self._whole, disabled))
            self.announce()

    def _serve(self, catalog: Catalog) -> None:
        # Increase the generation, because `CallerCatalogs` uses it as a key.
        generation = self._current.generation + 1
        self._current = catalog if catalog.generation == generation else replace(catalog, generation=generation)


def _check_name(catalog: Catalog, kind: ListKind, name: str) -> None:
    if (kind, name) not in _names(catalog):
        raise ExecutionError(f"`{kind}` has no definition named {name!r}")


def _without(catalog: Catalog, disabled: Disabled) -> Catalog:
    return catalog.where(lambda each: (each.kind, each.name) not in disabled) if disabled else catalog


def _names(catalog: Catalog) -> Disabled:
    return frozenset((each.kind, each.name) for each in catalog.primitives())
