"""Finds what a reference within a JSON Schema leads to. Pure: nothing is fetched.

`referencing` is imported once a schema has a reference, which few have: its import takes as long as the rest of this
package's.
"""

import msgspec

from gateway.json_types import Json, JsonObject


class SchemaReferences(msgspec.Struct, frozen=True):
    """References as they are written in a schema, or in one that stands in it and may have a base URI of its own."""

    resolver: Json
    """The resolver of `referencing`, which has no public type."""
    specification: Json

    def within(self, member: JsonObject) -> "SchemaReferences":
        inner = self.resolver.in_subresource(self.specification.create_resource(member))
        return SchemaReferences(inner, self.specification)

    def target(self, reference: str) -> "tuple[Json, SchemaReferences] | None":
        """Return what a reference leads to, and the references there; None if it leads nowhere in the schema."""
        from referencing.exceptions import Unresolvable  # noqa: PLC0415 - see above

        try:
            found = self.resolver.lookup(reference)
        # ValueError: a JSON Pointer whose index into a list is no number (`#/allOf/x`).
        except (Unresolvable, ValueError):
            return None
        return found.contents, SchemaReferences(found.resolver, self.specification)


def references_of(schema: JsonObject, *, dialect: str) -> SchemaReferences:
    """Return the references of a whole schema; `dialect` is the URI of its metaschema."""
    from referencing import Registry  # noqa: PLC0415 - see above
    from referencing.jsonschema import specification_with  # noqa: PLC0415 - see above

    specification: Json = specification_with(dialect)
    registry: Registry[Json] = Registry()
    return SchemaReferences(registry.resolver_with_root(specification.create_resource(schema)), specification)
