"""The views of the current catalog: who may enter each, and what a caller is served who came to one."""

from collections.abc import Iterator
from typing import Final

from gateway.access.identity import Identity
from gateway.catalog.caller_catalogs import CallerCatalogs
from gateway.catalog.catalog import Catalog, View
from gateway.catalog.store import CatalogStore
from gateway.errors import ErrorCode, InsufficientScopeError, RpcError
from gateway.protocol.exchange import Caller, ViewEntry


class ServedViews:
    """The views that there are now; a reload may bring others."""

    def __init__(self, store: CatalogStore, parts: CallerCatalogs) -> None:
        self._store: Final = store
        self._parts: Final = parts

    def entries(self) -> tuple[ViewEntry, ...]:
        """The conditions for entering each view."""
        return tuple(map(_entry, self._store.current.views.values()))

    def entry(self, name: str) -> ViewEntry | None:
        """The conditions for entering the view of that name; None if there is none."""
        view = self._store.current.views.get(name)
        return None if view is None else _entry(view)

    def parts(self) -> Iterator[tuple[str, Catalog]]:
        """The part that each view holds for callers with every scope, by its name."""
        catalog = self._store.current
        yield from ((name, self._parts.of(catalog, None, view=name)) for name in catalog.views)

    def admits(self, view: str | None, identity: Identity) -> bool:
        """Whether somebody may use a view, and there is one of that name; None is the whole, which all may use."""
        found = None if view is None else self.entry(view)
        return view is None or (found is not None and identity.holds(found.scopes))

    def catalog_for(self, caller: Caller) -> Catalog:
        """The part of the current catalog that a caller is served.

        Raises:
            RpcError: it came to a view that is not there, at least for this caller.
        """
        catalog, name = self._store.current, caller.view
        if name is not None and not self.admits(name, caller.identity):
            entry = self.entry(name)
            if entry is not None and entry.is_visible:
                raise InsufficientScopeError(entry.scopes)
            # The same text for a view that is hidden from this caller as for one that never was.
            raise RpcError(ErrorCode.INVALID_REQUEST, f"There is no view {name!r} here (any more)")
        scopes = caller.identity.scopes
        return catalog if name is None and scopes is None else self._parts.of(catalog, scopes, view=name)


def _entry(view: View) -> ViewEntry:
    return ViewEntry(name=view.name, scopes=view.access.scopes, is_visible=view.access.is_visible)
