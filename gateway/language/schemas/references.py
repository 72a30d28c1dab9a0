"""Resolves references within a JSON Schema. Nothing is fetched.

`referencing` is imported only for schemas with references, because its import is slow.
"""

import msgspec

from gateway.json_types import Json, JsonObject


class SchemaReferences(msgspec.Struct, frozen=True):
    """References of a schema, or of a subschema that can have another base URI."""

    resolver: Json
    """Resolver of `referencing`, which has no public type."""
    specification: Json

    def within(self, member: JsonObject) -> "SchemaReferences":
        inner = self.resolver.in_subresource(self.specification.create_resource(member))
        return SchemaReferences(inner, self.specification)

    def target(self, reference: str) -> "tuple[Json, SchemaReferences] | None":
        """Return the target of a reference and the references there, or None if the target does not exist."""
        from referencing.exceptions import Unresolvable  # noqa: PLC0415 - see above

        try:
            found = self.resolver.lookup(reference)
        # ValueError: a JSON Pointer with an index that is not a number (`#/allOf/x`).
        except (Unresolvable, ValueError):
            return None
        return found.contents, SchemaReferences(found.resolver, self.specification)


def references_of(schema: JsonObject, *, dialect: str) -> SchemaReferences:
    """Return the references of a schema. `dialect` is the URI of its metaschema."""
    from referencing import Registry  # noqa: PLC0415 - see above
    from referencing.jsonschema import specification_with  # noqa: PLC0415 - see above

    specification: Json = specification_with(dialect)
    registry: Registry[Json] = Registry()
    return SchemaReferences(registry.resolver_with_root(specification.create_resource(schema)), specification)
