from collections.abc import Iterator
from typing import Final

from gateway.access.identity import Identity
from gateway.catalog.caller_catalogs import CallerCatalogs
from gateway.catalog.catalog import Catalog, View
from gateway.catalog.store import CatalogStore
from gateway.errors import ErrorCode, InsufficientScopeError, RpcError
from gateway.protocol.exchange import Caller, ViewEntry


class ServedViews:
    def __init__(self, store: CatalogStore, parts: CallerCatalogs) -> None:
        self._store: Final = store
        self._parts: Final = parts

    def entries(self) -> tuple[ViewEntry, ...]:
        return tuple(map(_entry, self._store.current.views.values()))

    def entry(self, name: str) -> ViewEntry | None:
        view = self._store.current.views.get(name)
        return None if view is None else _entry(view)

    def parts(self) -> Iterator[tuple[str, Catalog]]:
        """Yield each view with its catalog for callers with all scopes."""
        catalog = self._store.current
        yield from ((name, self._parts.of(catalog, None, view=name)) for name in catalog.views)

    def admits(self, view: str | None, identity: Identity) -> bool:
        """Return whether the view exists and the identity has its scopes. A view of None means the whole catalog."""
        found = None if view is None else self.entry(view)
        return view is None or (found is not None and identity.holds(found.scopes))

    def catalog_for(self, caller: Caller) -> Catalog:
        """Return the catalog that a caller can see. Raise RpcError if the caller cannot use the view."""
        catalog, name = self._store.current, caller.view
        if name is not None and not self.admits(name, caller.identity):
            entry = self.entry(name)
            if entry is not None and entry.is_visible:
                raise InsufficientScopeError(entry.scopes)
            # Hidden and missing views have the same error.
            raise RpcError(ErrorCode.INVALID_REQUEST, f"The view {name!r} does not exist")
        scopes = caller.identity.scopes
        return catalog if name is None and scopes is None else self._parts.of(catalog, scopes, view=name)


def _entry(view: View) -> ViewEntry:
    return ViewEntry(name=view.name, scopes=view.access.scopes, is_visible=view.access.is_visible)
