"""Discriminators: the property of an object that says which of several schemas it has.

OpenAPI 3.1, "Discriminator Object".
"""

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
    """One of the schemas, and the values of the property that say so, if the document names them."""

    node: Node
    values: list[str]


class Discriminators:
    """The discriminators of one document."""

    def __init__(self, references: References, *, uri: str) -> None:
        self._references: Final = references
        self._uri: Final = uri
        self._subtypes: Final[dict[tuple[str, tuple[str, ...]], list[Alternative]]] = {}

    def mapped(self, node: Node) -> list[Alternative]:
        """The schemas that the mapping of a schema's discriminator names."""
        found: dict[tuple[str, tuple[str, ...]], Alternative] = {}
        for value, target in node.at("discriminator", "mapping").members():
            # The name of a component, or a URI.
            reference = str(target.value)
            if "#" not in reference and "/" not in reference:
                reference = f"#/components/schemas/{reference}"
            with suppress(DocumentError):
                resolved = self._references.resolve(reference, base=node.uri)
                found.setdefault(resolved.place, Alternative(resolved, [])).values.append(value)
        return list(found.values())

    def subtypes(self, node: Node) -> list[Alternative]:
        """The schemas that an object of this one has in truth: those of the mapping, or those that extend it.

        Empty where there is no discriminator, and where `oneOf` or `anyOf` names them.
        """
        if not isinstance(node.at("discriminator", "propertyName").value, str):
            return []
        if node.at("oneOf").value or node.at("anyOf").value:
            return []
        if node.place not in self._subtypes:
            found = self.mapped(node)
            if not found and node.uri == self._uri:
                found = [Alternative(each, []) for each in (*self._extending.get(node.shown, ()), node)]
            # A model has to choose among them.
            is_usable = len(found) <= MAX_SUBTYPES and any(each.node.place != node.place for each in found)
            self._subtypes[node.place] = found if is_usable else []
        return self._subtypes[node.place]

    def is_extended(self, node: Node) -> bool:
        return node.uri == self._uri and node.shown in self._extending

    @cached_property
    def _extending(self) -> Mapping[str, list[Node]]:
        """The components whose `allOf` refers to another, by its reference."""
        found: dict[str, list[Node]] = {}
        root = Node(self._references.root(self._uri), self._uri)
        for _, component in root.at("components", "schemas").members():
            for part in component.at("allOf").items():
                found.setdefault(str(part.at("$ref").value), []).append(component)
        return found


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
