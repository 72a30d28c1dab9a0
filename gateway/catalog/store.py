"""Holds the catalog that is currently served, and notifies subscribers when it is replaced."""

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
"""Called with the old and the new catalog on the event loop. It must not block."""

Disabled = frozenset[tuple[ListKind, str]]
"""Primitives disabled by plugins: kind and name in the file."""

log: Final = structlog.get_logger(__name__)


class Succession(msgspec.Struct, frozen=True, kw_only=True):
    """A prepared swap."""

    old: Catalog
    """The catalog to replace."""
    whole: Catalog
    offered: Catalog
    """The new catalog without disabled primitives."""
    disabled: Disabled
    gone: TombstonesByName


class CatalogStore:
    """Holds the current catalog. A request reads `current` once and uses that catalog until it ends."""

    def __init__(self, catalog: Catalog, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.tombstones: Final = Tombstones(clock=clock)
        self._whole = catalog
        """The catalog of the files, including disabled primitives."""
        self._disabled: Disabled = frozenset()
        self._current = catalog
        self._announced = catalog
        """The catalog that was last announced."""
        self._subscribers: Final[list[Callback]] = []

    @property
    def current(self) -> Catalog:
        return self._current

    @property
    def disabled(self) -> Disabled:
        """Primitives that plugins have disabled, by kind and name."""
        return self._disabled

    def prepare(self, catalog: Catalog) -> Succession:
        """Do the expensive part of a swap to `catalog`. Can run in another thread."""
        old, disabled = self._current, _pruned(catalog, self._disabled)
        offered = _without(catalog, disabled)
        return Succession(
            old=old, whole=catalog, offered=offered, disabled=disabled, gone=self.tombstones.gone(old, offered)
        )

    def swap(self, catalog: Catalog, *, prepared: Succession | None = None) -> None:
        """Serve `catalog` without the disabled primitives. Call `announce` to notify the subscribers.

        If the current catalog changed since `prepare`, the swap is prepared again. The generation is incremented.
        """
        # Another swap or a plugin may have changed the current catalog in the meantime.
        if prepared is None or prepared.whole is not catalog or prepared.old is not self._current:
            prepared = self.prepare(catalog)
        self._whole, self._disabled = catalog, prepared.disabled
        # The single assignment that makes the new catalog visible. Everything that can fail was done before.
        self._serve(prepared.offered)
        self.tombstones.note(prepared.old, self._current, gone=prepared.gone)

    def announce(self) -> None:
        """Notify the subscribers of the change since the last announcement."""
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
        """Remove a primitive from the lists until it is enabled, across reloads.

        Raises:
            ExecutionError: the file does not define it.
        """
        _check_name(self._whole, kind, name)
        self._set_disabled(self._disabled | {(kind, name)})

    def enable(self, kind: ListKind, name: str) -> None:
        """Restore a disabled primitive.

        Raises:
            ExecutionError: the file does not define it.
        """
        _check_name(self._whole, kind, name)
        self._set_disabled(self._disabled - {(kind, name)})

    def subscribe(self, callback: Callback) -> None:
        """Call `callback` with each announcement."""
        self._subscribers.append(callback)

    def _set_disabled(self, disabled: Disabled) -> None:
        if disabled != self._disabled:
            self._disabled = disabled
            self._serve(_without(self._whole, disabled))
            self.announce()

    def _serve(self, catalog: Catalog) -> None:
        # Each swap increments the generation, which `CallerCatalogs` uses as a key.
        generation = self._current.generation + 1
        self._current = catalog if catalog.generation == generation else replace(catalog, generation=generation)


def _check_name(catalog: Catalog, kind: ListKind, name: str) -> None:
    """Reject a name that the file does not define.

    Raises:
        ExecutionError: the file does not define it.
    """
    if (kind, name) not in _names(catalog):
        raise ExecutionError(f"There is no {name!r} among the {kind}")


def _pruned(catalog: Catalog, disabled: Disabled) -> Disabled:
    """Return the disabled primitives that this catalog still contains."""
    return disabled and disabled & _names(catalog)


def _without(catalog: Catalog, disabled: Disabled) -> Catalog:
    return catalog.where(lambda each: (each.kind, each.name) not in disabled) if disabled else catalog


def _names(catalog: Catalog) -> Disabled:
    return frozenset((each.kind, each.name) for each in catalog.primitives())
