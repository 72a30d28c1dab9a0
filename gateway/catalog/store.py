"""Holds the served catalog, and notifies subscribers when it is replaced."""

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
"""Called on the event loop with the old and the new catalog. Must not block."""

Disabled = frozenset[tuple[ListKind, str]]
"""Kind and name of each primitive that a plugin has disabled."""

log: Final = structlog.get_logger(__name__)


class Succession(msgspec.Struct, frozen=True, kw_only=True):
    old: Catalog
    whole: Catalog
    offered: Catalog
    """The new catalog without disabled primitives."""
    disabled: Disabled
    gone: TombstonesByName


class CatalogStore:
    """Holds the current catalog. A request reads `current` once and keeps that catalog."""

    def __init__(self, catalog: Catalog, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.tombstones: Final = Tombstones(clock=clock)
        self._whole = catalog
        """All primitives of the files, including disabled ones."""
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

    def prepare(self, catalog: Catalog) -> Succession:
        """Do the expensive part of a swap. Can run in another thread."""
        old, disabled = self._current, self._disabled and self._disabled & _names(catalog)
        offered = _without(catalog, disabled)
        return Succession(
            old=old, whole=catalog, offered=offered, disabled=disabled, gone=self.tombstones.gone(old, offered)
        )

    def swap(self, catalog: Catalog, *, prepared: Succession | None = None) -> None:
        """Serve `catalog` without the disabled primitives, with a new generation. Then call `announce`.

        The swap is prepared again if the current catalog has changed since `prepare`.
        """
        # Another swap or a plugin can have changed the current catalog.
        if prepared is None or prepared.whole is not catalog or prepared.old is not self._current:
            prepared = self.prepare(catalog)
        self._whole, self._disabled = catalog, prepared.disabled
        # Everything that can fail is done. This assignment makes the new catalog visible.
        self._serve(prepared.offered)
        self.tombstones.note(prepared.old, self._current, gone=prepared.gone)

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
        """Hide a primitive until it is enabled, even across reloads.

        Raises:
            ExecutionError: the file does not define it.
        """
        _check_name(self._whole, kind, name)
        self._set_disabled(self._disabled | {(kind, name)})

    def enable(self, kind: ListKind, name: str) -> None:
        """Show a disabled primitive again.

        Raises:
            ExecutionError: the file does not define it.
        """
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
        # `CallerCatalogs` uses the generation as a key.
        generation = self._current.generation + 1
        self._current = catalog if catalog.generation == generation else replace(catalog, generation=generation)


def _check_name(catalog: Catalog, kind: ListKind, name: str) -> None:
    """Raises: ExecutionError: the file does not define the name."""
    if (kind, name) not in _names(catalog):
        raise ExecutionError(f"`{kind}` has no definition named {name!r}")


def _without(catalog: Catalog, disabled: Disabled) -> Catalog:
    return catalog.where(lambda each: (each.kind, each.name) not in disabled) if disabled else catalog


def _names(catalog: Catalog) -> Disabled:
    return frozenset((each.kind, each.name) for each in catalog.primitives())
