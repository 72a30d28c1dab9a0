"""Narrows the catalog to the primitives that one caller can see.

Hidden primitives are removed, so lookups need no further checks. Primitives marked `visible` are always included, and
their scopes are checked on use.
"""

from typing import Final

from msgspec.structs import replace

from gateway.bounded_map import BoundedMap
from gateway.catalog.catalog import Catalog, View, names_of

MAX_PARTS: Final = 256
"""Number of cached parts. The least recently used part is dropped."""


class CallerCatalogs:
    def __init__(self) -> None:
        self._kept: Final[BoundedMap[tuple[int, str | None, frozenset[str] | None], Catalog]] = BoundedMap(MAX_PARTS)

    def of(self, catalog: Catalog, scopes: frozenset[str] | None, *, view: str | None = None) -> Catalog:
        """Return the catalog for a caller with these scopes (None: all) in an existing view."""
        # Irrelevant scopes are ignored, so that many callers share one part.
        scopes = None if scopes is None or catalog.scopes <= scopes else scopes & catalog.scopes
        if scopes is None and view is None:
            return catalog
        # MCP 2026-07-28 server/tools "Capabilities": lists may depend on authorization, but not on the connection.
        key = catalog.generation, view, scopes
        if (kept := self._kept.get(key)) is None:
            # Requests can still use the previous generation right after a reload.
            self._forget_before(catalog.generation - 1)
            if view is None:
                kept = scoped(catalog, scopes or frozenset())
            else:
                # All views share the part that was narrowed by scopes.
                kept = viewed(self.of(catalog, scopes), catalog.views[view])
            self._kept.put(key, kept)
        return kept

    def _forget_before(self, generation: int) -> None:
        for key in [key for key, _ in self._kept.items() if key[0] < generation]:
            self._kept.discard(key)


def scoped(catalog: Catalog, held: frozenset[str]) -> Catalog:
    """Return the primitives that these scopes allow."""
    return replace(catalog.where(lambda each: each.access.is_listed_for(held)), scoped_to=held)


def viewed(catalog: Catalog, view: View) -> Catalog:
    """Return the primitives that belong to a view."""
    part = replace(
        catalog.where(lambda each: view.holds(each.kind, tags=each.tags, names=names_of(each))),
        view=view.name,
        beyond=catalog,
        instructions=catalog.instructions if view.instructions is None else view.instructions,
        scopes=catalog.scopes | view.access.scopes,
    )
    search = catalog.searches.get(view.name)
    return part if search is None else search(part)
