"""The catalogs of callers: the part of a catalog that one is served, by the view that it came to and its scopes.

A part needs no further check: what the caller may not see is as unknown in it as what was never written. A `visible`
primitive is in every part, and its scopes are checked when it is used.
"""

from typing import Final

from msgspec.structs import replace

from gateway.bounded_map import BoundedMap
from gateway.catalog.catalog import Catalog
from gateway.catalog.views import View, names_of

MAX_PARTS: Final = 256
"""Parts that are kept; the least recently used is dropped, and made again when it is needed."""


class CallerCatalogs:
    """The parts of the catalogs that are in use, each made once."""

    def __init__(self) -> None:
        self._kept: Final[BoundedMap[tuple[int, str | None, frozenset[str] | None], Catalog]] = BoundedMap(MAX_PARTS)

    def of(self, catalog: Catalog, scopes: frozenset[str] | None, *, view: str | None = None) -> Catalog:
        """The part for a caller with these scopes, None being every scope, who came to a view that the catalog has."""
        # Without scopes that decide nothing here, so that many callers share one part.
        scopes = None if scopes is None or catalog.scopes <= scopes else scopes & catalog.scopes
        if scopes is None and view is None:
            return catalog
        # MCP 2026-07-28 server/tools "Capabilities": a list may vary by what a request is authorized for, but not by
        # its connection. So nothing else of the caller is in the key.
        key = catalog.generation, view, scopes
        if (kept := self._kept.get(key)) is None:
            # Those of the generation before stay: right after a reload many requests still run with it.
            self._forget_before(catalog.generation - 1)
            if view is None:
                kept = scoped(catalog, scopes or frozenset())
            else:
                # By scopes first: that part is shared by all views that the caller comes to.
                kept = viewed(self.of(catalog, scopes), catalog.views[view])
            self._kept.put(key, kept)
        return kept

    def _forget_before(self, generation: int) -> None:
        """Drop the parts of catalogs that only calls in flight may still use."""
        for key in [key for key, _ in self._kept.items() if key[0] < generation]:
            self._kept.discard(key)


def scoped(catalog: Catalog, held: frozenset[str]) -> Catalog:
    """The part of a catalog that is for holders of these scopes."""
    return replace(catalog.where(lambda each: each.access.is_listed_for(held)), scoped_to=held)


def viewed(catalog: Catalog, view: View) -> Catalog:
    """The part of a catalog that belongs to a view."""
    part = replace(
        catalog.where(lambda each: view.holds(each.kind, tags=each.tags, names=names_of(each))),
        view=view.name,
        beyond=catalog,
        instructions=catalog.instructions if view.instructions is None else view.instructions,
        scopes=catalog.scopes | view.access.scopes,
    )
    search = catalog.searches.get(view.name)
    return part if search is None else search(part)
