"""Discriminators: the property of an object that says which of several schemas it has.

OpenAPI 3.1, "Discriminator Object".
"""

from collections.abc import Iterator
from contextlib import suppress
from typing import Final

import msgspec

from gateway.json_types import Json
from gateway.openapi.document import DocumentError
from gateway.openapi.references import Node, References

MAX_SUBTYPES: Final = 40


class Alternative(msgspec.Struct, frozen=True):
    """One of the schemas, and the values of the property that say so, if the document names them."""

    node: Node
    values: list[str]


class Discriminators:
    """The discriminators of one document."""

    def __init__(self, references: References, *, uri: str) -> None:
        self._references: Final = references
        self._uri: Final = uri
        self._extending: dict[str, list[str]] | None = None
        """The names of the components whose `allOf` refers to a component, by its reference."""
        self._subtypes: Final[dict[tuple[str, tuple[str, ...]], list[Alternative]]] = {}

    def mapped(self, node: Node) -> list[Alternative]:
        """The schemas that the mapping of a schema's discriminator names."""
        found: dict[tuple[str, tuple[str, ...]], Alternative] = {}
        mapping = node.at("discriminator", "mapping").value
        for value, target in mapping.items() if isinstance(mapping, dict) else ():
            # The name of a component, or a URI.
            is_uri = any(each in str(target) for each in "#/")
            with suppress(DocumentError):
                reference = str(target) if is_uri else f"#/components/schemas/{target}"
                resolved = self._references.resolve(reference, base=node.uri)
                found.setdefault(resolved.place, Alternative(resolved, [])).values.append(value)
        return list(found.values())

    def subtypes(self, node: Node) -> list[Alternative]:
        """The schemas that an object of this one has in truth: those of the mapping, or those that extend it.

        Empty where there is no discriminator, and where `oneOf` or `anyOf` names them.
        """
        if node.place not in self._subtypes:
            self._subtypes[node.place] = list(self._found(node))
        return self._subtypes[node.place]

    def _found(self, node: Node) -> Iterator[Alternative]:
        if not isinstance(node.at("discriminator", "propertyName").value, str):
            return
        if node.at("oneOf").value or node.at("anyOf").value:
            return
        mapped = self.mapped(node)
        if not mapped:
            extending = self._components_by_parent().get(node.shown, []) if node.uri == self._uri else []
            root = Node(self._references.root(self._uri), self._uri)
            mapped = [Alternative(root.at("components", "schemas", name), []) for name in extending]
            if mapped:
                mapped.append(Alternative(node, []))
        # A schema for models to choose by: of more they would not.
        if len(mapped) <= MAX_SUBTYPES and any(each.node.place != node.place for each in mapped):
            yield from mapped

    def _components_by_parent(self) -> dict[str, list[str]]:
        if self._extending is None:
            self._extending = {}
            components = Node(self._references.root(self._uri), self._uri).at("components", "schemas").value
            for name, schema in components.items() if isinstance(components, dict) else ():
                parts = schema.get("allOf") if isinstance(schema, dict) else None
                for part in parts if isinstance(parts, list) else ():
                    if isinstance(part, dict) and isinstance(part.get("$ref"), str):
                        self._extending.setdefault(part["$ref"], []).append(name)
        return self._extending


def tagged(schema: Json, alternative: Alternative, name: Json) -> Json:
    """A schema for one alternative, in which the property of this name has one of its values."""
    own = alternative.node.at("properties", str(name))
    if own.at("type").value not in (None, "string"):
        return schema
    known = own.at("enum").value
    values = [value for value in alternative.values if not isinstance(known, list) or value in known]
    if not values or not isinstance(name, str):
        return schema
    kind: dict[str, Json] = {"const": values[0]} if len(values) == 1 else {"enum": values}
    return {**schema, "properties": {name: {"type": "string", **kind}}, "required": [name]}
