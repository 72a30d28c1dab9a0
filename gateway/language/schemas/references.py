"""Finds what a reference within a JSON Schema leads to. Pure: nothing is fetched.

Imported once a schema has a reference, which few have: `referencing` and what it imports take as long to import as the
rest of this room.
"""

from typing import Final

import msgspec
from referencing import Registry, Specification
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT7, DRAFT201909, DRAFT202012

from gateway.json_types import Json, JsonObject

_SPECIFICATIONS: Final[dict[str, Specification[Json]]] = {
    "https://json-schema.org/draft/2020-12/schema": DRAFT202012,
    "https://json-schema.org/draft/2019-09/schema": DRAFT201909,
    "http://json-schema.org/draft-07/schema": DRAFT7,
}


class References(msgspec.Struct, frozen=True):
    """References as they are written in a schema, or in one that stands in it and may have a base URI of its own."""

    resolver: Json
    """The resolver of `referencing`, which has no public type."""
    specification: Specification[Json]

    def within(self, member: JsonObject) -> "References":
        inner = self.resolver.in_subresource(self.specification.create_resource(member))
        return References(inner, self.specification)

    def target(self, reference: str) -> "tuple[Json, References] | None":
        """Return what a reference leads to, and the references there; None if it leads nowhere in the schema."""
        try:
            found = self.resolver.lookup(reference)
        # ValueError: a JSON Pointer whose index into a list is no number (`#/allOf/x`).
        except (Unresolvable, ValueError):
            return None
        return found.contents, References(found.resolver, self.specification)


def references_of(schema: JsonObject, *, dialect: str) -> References:
    """Return the references of a whole schema; `dialect` is the URI of its metaschema."""
    specification = _SPECIFICATIONS[dialect]
    return References(Registry().resolver_with_root(specification.create_resource(schema)), specification)
