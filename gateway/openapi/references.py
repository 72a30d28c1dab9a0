"""Resolves `$ref` within a document and to others, lazily. Fetches nothing by itself.

Threat answered here: a document that makes the daemon read what it should not. Of a file, references lead into its own
directory and below, with links resolved; of a URL, to its own origin. Everything else is refused.
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
"""References that may follow each other before there is a value."""


class Node(msgspec.Struct, frozen=True):
    """A value in a document, and where that is."""

    value: Json
    uri: str
    """The document's."""
    pointer: tuple[str, ...] = ()

    def at(self, *steps: str) -> "Node":
        """A member; of what is no object, or has it not, null."""
        value = self.value
        for step in steps:
            value = value.get(step) if isinstance(value, dict) else None
        return Node(value, self.uri, (*self.pointer, *steps))

    def items(self) -> "list[Node]":
        """The items of a list; none of what is no list."""
        given = self.value if isinstance(self.value, list) else []
        return [Node(each, self.uri, (*self.pointer, str(index))) for index, each in enumerate(given)]

    def members(self) -> "list[tuple[str, Node]]":
        """The members of an object by their names; none of what is no object."""
        return [(name, self.at(name)) for name in (self.value if isinstance(self.value, dict) else ())]

    @property
    def place(self) -> tuple[str, tuple[str, ...]]:
        return self.uri, self.pointer

    @property
    def shown(self) -> str:
        return "#" + "".join(f"/{step.replace('~', '~0').replace('/', '~1')}" for step in self.pointer)


class References:
    """All documents that one leads to."""

    def __init__(self, open_document: Callable[[str], Json]) -> None:
        """Read nothing yet.

        Args:
            open_document: reads the document with a URI; raises `DocumentError` for one that must not be read.
        """

        @cache
        def retrieve(uri: str) -> Resource[Json]:
            root = open_document(uri)
            return DRAFT202012.create_resource(converted(root) if is_swagger(root) else root)

        retriever: Retrieve[Json] = retrieve
        self._registry: Final[Registry[Json]] = Registry(retrieve=retriever)  # type: ignore[call-arg]
        self._open: Final = retrieve

    def root(self, uri: str) -> JsonObject:
        """The whole of a document.

        Raises:
            DocumentError: it cannot be read.
        """
        root: JsonObject = self._open(uri).contents
        return root

    def resolve(self, reference: str, *, base: str) -> Node:
        """The node that a reference leads to, which may be one itself.

        Raises:
            DocumentError: it leads nowhere, or must not be followed.
        """
        try:
            uri, fragment = (base, reference[1:]) if reference.startswith("#") else urldefrag(urljoin(base, reference))
        except ValueError as error:
            raise DocumentError(f"`$ref: {reference}` is no URL") from error
        if fragment and not fragment.startswith("/"):
            raise DocumentError(f"`$ref: {reference}` is no JSON Pointer (#/…)")
        try:
            resource = self._open(uri)
            found = resource.pointer(fragment, resolver=self._registry.resolver(uri))
        except (Unresolvable, ValueError) as error:
            raise DocumentError(f"`$ref: {reference}` leads nowhere") from error
        return Node(found.contents, uri, _steps(fragment))

    def follow(self, node: Node) -> Node:
        """The node itself, or the one that its `$ref` leads to in the end.

        Raises:
            DocumentError: it leads nowhere, or in a circle.
        """
        for _ in range(_MAX_CHAIN):
            reference = node.value.get("$ref") if isinstance(node.value, dict) else None
            if not isinstance(reference, str):
                return node
            node = self.resolve(reference, base=node.uri)
        raise DocumentError(f"the references at {node.shown} lead in a circle")


def _steps(fragment: str) -> tuple[str, ...]:
    if not fragment:
        return ()
    # RFC 6901 §4: in this order, so that `~01` is `~1` and not `/`.
    return tuple(step.replace("~1", "/").replace("~0", "~") for step in fragment.split("/")[1:])
