"""Resolves `$ref` within a document and to other documents, when it is used.

Threat: a document that makes the daemon read other files or URLs. `open_document` restricts references to the
document's directory or origin.
"""

from collections.abc import Callable
from functools import cache
from typing import Final
from urllib.parse import urldefrag, urljoin

import msgspec
from referencing import Registry, Resource
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT202012
from referencing.typing import Retrieve

from gateway.json_types import Json, JsonObject
from gateway.openapi.document import DocumentError
from gateway.openapi.swagger import converted, is_swagger

_MAX_CHAIN: Final = 32
"""The longest chain of references to one value."""


class Node(msgspec.Struct, frozen=True):
    value: Json
    uri: str
    pointer: tuple[str, ...] = ()

    def at(self, *steps: str) -> "Node":
        """Return a member, with a null value if it is missing."""
        value = self.value
        for step in steps:
            value = value.get(step) if isinstance(value, dict) else None
        return Node(value, self.uri, (*self.pointer, *steps))

    def items(self) -> "list[Node]":
        given = self.value if isinstance(self.value, list) else []
        return [Node(each, self.uri, (*self.pointer, str(index))) for index, each in enumerate(given)]

    def members(self) -> "list[tuple[str, Node]]":
        return [(name, self.at(name)) for name in (self.value if isinstance(self.value, dict) else ())]

    @property
    def place(self) -> tuple[str, tuple[str, ...]]:
        return self.uri, self.pointer

    @property
    def shown(self) -> str:
        return "#" + "".join(f"/{step.replace('~', '~0').replace('/', '~1')}" for step in self.pointer)


class References:
    """Resolves references. Reads each document once."""

    def __init__(self, open_document: Callable[[str], Json]) -> None:
        """`open_document` raises `DocumentError` if the document must not be read."""

        @cache
        def retrieve(uri: str) -> Resource[Json]:
            root = open_document(uri)
            return DRAFT202012.create_resource(converted(root) if is_swagger(root) else root)

        retriever: Retrieve[Json] = retrieve
        self._registry: Final[Registry[Json]] = Registry(retrieve=retriever)  # type: ignore[call-arg]
        self._open: Final = retrieve

    def root(self, uri: str) -> JsonObject:
        """Return the root of a document.

        Raises:
            DocumentError: the document cannot be read.
        """
        root: JsonObject = self._open(uri).contents
        return root

    def resolve(self, reference: str, *, base: str) -> Node:
        """Return the target of a reference, which can be another reference.

        Raises:
            DocumentError: the target does not exist or must not be read.
        """
        try:
            uri, fragment = (base, reference[1:]) if reference.startswith("#") else urldefrag(urljoin(base, reference))
        except ValueError as error:
            raise DocumentError(f"`$ref: {reference}` is not a valid URL") from error
        if fragment and not fragment.startswith("/"):
            raise DocumentError(f"`$ref: {reference}` is not a JSON Pointer (#/…)")
        try:
            resource = self._open(uri)
            found = resource.pointer(fragment, resolver=self._registry.resolver(uri))
        except (Unresolvable, ValueError) as error:
            raise DocumentError(f"the target of `$ref: {reference}` does not exist") from error
        return Node(found.contents, uri, _steps(fragment))

    def follow(self, node: Node) -> Node:
        """Follow references to a value.

        Raises:
            DocumentError: a target does not exist, or the references form a cycle.
        """
        for _ in range(_MAX_CHAIN):
            reference = node.value.get("$ref") if isinstance(node.value, dict) else None
            if not isinstance(reference, str):
                return node
            node = self.resolve(reference, base=node.uri)
        raise DocumentError(f"the references at {node.shown} form a cycle")


def _steps(fragment: str) -> tuple[str, ...]:
    if not fragment:
        return ()
    # RFC 6901 §4: in this order, so that `~01` becomes `~1` and not `/`.
    return tuple(step.replace("~1", "/").replace("~0", "~") for step in fragment.split("/")[1:])
