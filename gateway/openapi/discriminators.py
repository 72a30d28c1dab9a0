"""Discriminators: properties that name the schema of an object (OpenAPI 3.1, "Discriminator Object")."""

from collections.abc import Mapping
from contextlib import suppress
from functools import cached_property
from typing import Final

import msgspec

from gateway.json_types import Json
from gateway.openapi.document import DocumentError
from gateway.openapi.references import Node, References

MAX_SUBTYPES: Final = 40


class Alternative(msgspec.Struct, frozen=True):
    """One of the schemas, with the property values that the document maps to it."""

    node: Node
    values: list[str]


class Discriminators:
    def __init__(self, references: References, *, uri: str) -> None:
        self._references: Final = references
        self._uri: Final = uri
        self._subtypes: Final[dict[tuple[str, tuple[str, ...]], list[Alternative]]] = {}

    def mapped(self, node: Node) -> list[Alternative]:
        found: dict[tuple[str, tuple[str, ...]], Alternative] = {}
        for value, target in node.at("discriminator", "mapping").members():
            # A component name or a URI reference.
            reference = str(target.value)
            if "#" not in reference and "/" not in reference:
                reference = f"#/components/schemas/{reference}"
            with suppress(DocumentError):
                resolved = self._references.resolve(reference, base=node.uri)
                found.setdefault(resolved.place, Alternative(resolved, [])).values.append(value)
        return list(found.values())

    def subtypes(self, node: Node) -> list[Alternative]:
        """Return the subtypes of a schema: from its mapping, or else the schemas that extend it.

        Empty without a discriminator, or if `oneOf` or `anyOf` lists the subtypes.
        """
        if not isinstance(node.at("discriminator", "propertyName").value, str):
            return []
        if node.at("oneOf").value or node.at("anyOf").value:
            return []
        if node.place not in self._subtypes:
            found = self.mapped(node)
            if not found and node.uri == self._uri:
                found = [Alternative(each, []) for each in (*self._extending.get(node.shown, ()), node)]
            # A model must be able to choose one of them.
            is_usable = len(found) <= MAX_SUBTYPES and any(each.node.place != node.place for each in found)
            self._subtypes[node.place] = found if is_usable else []
        return self._subtypes[node.place]

    def is_extended(self, node: Node) -> bool:
        return node.uri == self._uri and node.shown in self._extending

    @cached_property
    def _extending(self) -> Mapping[str, list[Node]]:
        """Components that extend others with `allOf`, by the reference to the extended component."""
        found: dict[str, list[Node]] = {}
        root = Node(self._references.root(self._uri), self._uri)
        for _, component in root.at("components", "schemas").members():
            for part in component.at("allOf").items():
                found.setdefault(str(part.at("$ref").value), []).append(component)
        return found


def tagged(schema: Json, alternative: Alternative, name: Json) -> Json:
    """Return a schema that also requires the discriminator values of an alternative."""
    own = alternative.node.at("properties", str(name))
    if own.at("type").value not in (None, "string"):
        return schema
    known = own.at("enum").value
    values = [value for value in alternative.values if not isinstance(known, list) or value in known]
    if not values or not isinstance(name, str):
        return schema
    kind: dict[str, Json] = {"const": values[0]} if len(values) == 1 else {"enum": values}
    return {**schema, "properties": {name: {"type": "string", **kind}}, "required": [name]}
