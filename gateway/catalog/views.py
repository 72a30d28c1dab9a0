"""Compiled views: named parts of the catalog. A view restricts what scopes allow, and never extends it."""

import re
from collections.abc import Iterable, Mapping

import msgspec

from gateway.catalog.primitives import EVERYBODY, Primitive, RequiredScopes, Resource, ResourceTemplate
from gateway.plugin import ListKind


class ViewSelection(msgspec.Struct, frozen=True, kw_only=True):
    """A compiled `include` or `exclude`."""

    tags: frozenset[str] = frozenset()
    names: Mapping[ListKind, re.Pattern[str]] = msgspec.field(default_factory=dict)
    """By kind. A kind without an entry selects no names."""

    def fits(self, kind: ListKind, *, tags: Iterable[str], names: Iterable[str]) -> bool:
        pattern = self.names.get(kind)
        return not self.tags.isdisjoint(tags) or (pattern is not None and any(map(pattern.match, names)))


class View(msgspec.Struct, frozen=True, kw_only=True):
    """A part of the catalog with a separate endpoint."""

    name: str
    include: ViewSelection | None = None
    """None: everything."""
    exclude: ViewSelection | None = None
    instructions: str | None = None
    """None: those of the whole catalog."""
    access: RequiredScopes = EVERYBODY

    def holds(self, kind: ListKind, *, tags: Iterable[str], names: Iterable[str]) -> bool:
        """Whether a primitive belongs to the view. Resources have two names: key and URI."""
        tags, names = tuple(tags), tuple(names)
        if self.include is not None and not self.include.fits(kind, tags=tags, names=names):
            return False
        return self.exclude is None or not self.exclude.fits(kind, tags=tags, names=names)


def names_of(primitive: Primitive) -> tuple[str, ...]:
    """Return the names of a primitive that views can select."""
    match primitive:
        case Resource(name=name, uri=uri):
            return name, uri
        case ResourceTemplate(name=name, uri_template=uri_template):
            return name, uri_template
        case _:
            return (primitive.name,)
