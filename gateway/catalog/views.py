"""Views: named parts of the catalog, compiled. A view narrows what scopes leave a caller, and opens nothing."""

import re
from collections.abc import Iterable, Mapping

import msgspec

from gateway.catalog.primitives import EVERYBODY, Primitive, RequiredScopes, Resource, ResourceTemplate
from gateway.plugin import ListKind


class ViewSelection(msgspec.Struct, frozen=True, kw_only=True):
    """A compiled `include` or `exclude`."""

    tags: frozenset[str] = frozenset()
    names: Mapping[ListKind, re.Pattern[str]] = msgspec.field(default_factory=dict)
    """By kind; a kind that is missing has no names."""

    def fits(self, kind: ListKind, *, tags: Iterable[str], names: Iterable[str]) -> bool:
        pattern = self.names.get(kind)
        return not self.tags.isdisjoint(tags) or (pattern is not None and any(map(pattern.match, names)))


class View(msgspec.Struct, frozen=True, kw_only=True):
    """A part of the catalog with an endpoint of its own."""

    name: str
    include: ViewSelection | None = None
    """None: everything."""
    exclude: ViewSelection | None = None
    instructions: str | None = None
    """None: those of the whole."""
    access: RequiredScopes = EVERYBODY

    def holds(self, kind: ListKind, *, tags: Iterable[str], names: Iterable[str]) -> bool:
        """Whether a primitive belongs to it; a resource has several names: its key in the file, and its URI."""
        tags, names = tuple(tags), tuple(names)
        if self.include is not None and not self.include.fits(kind, tags=tags, names=names):
            return False
        return self.exclude is None or not self.exclude.fits(kind, tags=tags, names=names)


def names_of(primitive: Primitive) -> tuple[str, ...]:
    """The names that views know a primitive by."""
    match primitive:
        case Resource(name=name, uri=uri):
            return name, uri
        case ResourceTemplate(name=name, uri_template=uri_template):
            return name, uri_template
        case _:
            return (primitive.name,)
