"""Reads JSON and YAML documents, and resolves each `$ref` when it is used.

Threat: a document could make the daemon read other files or URLs. References can therefore only lead to the document's
directory or origin.
"""

import os
import re
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urldefrag, urljoin, urlsplit

import msgspec
import orjson
from referencing import Registry, Resource
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT202012
from referencing.typing import Retrieve

from gateway.config.reading.composer import compose
from gateway.config.reading.nodes import plain
from gateway.config.reading.source_file import SourceFile, UnreadableError, decode, digest, read_bytes
from gateway.json_types import Json, JsonObject
from gateway.net.request import parse_url
from gateway.openapi.swagger import converted, is_swagger

MAX_BYTES: Final = 32 * 2**20
"""Maximum size, in bytes, of a document together with all documents that it references."""
_MAX_NODES: Final = 3_000_000

_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*")


class DocumentError(Exception):
    """The document, or a part of it, cannot be used. All functions that read documents raise this error."""


def check_readable(document: str) -> None:
    """Check the path or URL of a document.

    Raises:
        DocumentError: the URL is malformed or its scheme is not supported.
    """
    scheme, separator, path = document.partition("://")
    if not separator or not _SCHEME.fullmatch(scheme):
        return
    if scheme.lower() in {"http", "https"}:
        with suppress(ValueError):
            if parse_url(document).host:
                return
        raise DocumentError("is not a URL such as https://api.example.com/openapi.json")
    hint = f". Write its path: {path}" if scheme.lower() == "file" else ""
    raise DocumentError(f"the scheme {scheme}: is not supported. Use a file path, http: or https:{hint}")


def read(data: bytes, *, name: str) -> JsonObject:
    """Decode a document. `name` is the file name for messages.

    Raises:
        DocumentError: the document is malformed or its root is not an object. The message starts with `name`.
    """
    # Detect JSON by content, because a URL need not end in .json, and servers use many media types.
    is_json = data.lstrip()[:1] == b"{" or data.startswith(b"\xef\xbb\xbf{")
    root = _from_json(data, name) if is_json else _from_yaml(data, name)
    if not isinstance(root, dict):
        raise DocumentError(f"{name} is not an OpenAPI document: its root must be an object")
    return root


class LocalDocuments:
    """A document in a file, with the referenced files in its directory."""

    def __init__(self, path: Path) -> None:
        self.uri: Final = path.absolute().as_uri()
        self.files: Final[dict[Path, str]] = {}
        """SHA-256 of each requested file, or an empty string if the file cannot be read."""
        self._sources: Final[dict[str, bytes]] = {}
        self._path: Final = path.absolute()
        self._directory: Final = os.path.realpath(path.parent)
        self._room = MAX_BYTES

    def open(self, uri: str) -> JsonObject:
        return read(self.source(uri), name=self._place(uri).name)

    def source(self, uri: str) -> bytes:
        """Return the bytes of a document. Raise DocumentError if it is outside the directory or cannot be read."""
        if uri not in self._sources:
            self._sources[uri] = self._read(self._place(uri))
        return self._sources[uri]

    def _place(self, uri: str) -> Path:
        if uri == self.uri:
            return self._path
        parts = urlsplit(uri)
        if parts.scheme != "file" or parts.netloc not in {"", "localhost"}:
            raise DocumentError(f"`{uri}` is outside the document's directory, so it is not read")
        path = Path(unquote(parts.path))
        # Links are resolved first, because they can lead out of the directory.
        if "\0" in str(path) or not Path(os.path.realpath(path)).is_relative_to(self._directory):
            raise DocumentError(f"`{path}` is outside the document's directory, so it is not read")
        return path

    def _read(self, path: Path) -> bytes:
        try:
            data = read_bytes(path, at_most=MAX_BYTES)
        except UnreadableError as error:
            # Watch the path, because the file can appear later.
            self.files[path] = ""
            raise DocumentError(f"cannot read {path}: {error}") from error
        self.files[path] = digest(data)
        self._room -= len(data)
        if self._room < 0:
            raise DocumentError(f"the document and its references are larger than {MAX_BYTES // 2**20} MiB")
        return data


def version_of(root: JsonObject) -> str:
    """Return the OpenAPI version of a document.

    Raises:
        DocumentError: the version is not supported.
    """
    version = str(root.get("openapi", ""))
    if version.startswith("3."):
        return version
    found = f"OpenAPI {version}" if version else f"Swagger {root['swagger']}" if "swagger" in root else "not OpenAPI"
    raise DocumentError(f"is {found}. Use OpenAPI 3.x or Swagger 2.0")


def _from_json(data: bytes, name: str) -> Json:
    try:
        # RFC 8259 §8.1 allows parsers to ignore a byte order mark, but orjson rejects it.
        return orjson.loads(data.removeprefix(b"\xef\xbb\xbf"))
    except orjson.JSONDecodeError as error:
        raise DocumentError(f"{name}:{error.lineno}:{error.colno}: not JSON: {error.msg}") from error


def _from_yaml(data: bytes, name: str) -> Json:
    try:
        text = decode(data)
    except UnreadableError as error:
        raise DocumentError(f"{name}:{error.line}:{error.column}: {error}") from error
    # Status codes are usually written without quotes, so they are integers in YAML (`200:`).
    root, diagnostics = compose(SourceFile(Path(name), text), has_scalar_keys=True, max_nodes=_MAX_NODES)
    if root is None:
        first = next(iter(diagnostics), None)
        where = "" if first is None or first.place is None else f":{first.place.line}:{first.place.column}"
        raise DocumentError(f"{name}{where}: {first.message if first else 'is empty'}")
    return plain(root)


_MAX_CHAIN: Final = 32
"""Maximum number of consecutive references. More references count as a cycle."""


class Node(msgspec.Struct, frozen=True):
    value: Json
    uri: str
    pointer: tuple[str, ...] = ()

    def at(self, *steps: str) -> "Node":
        """Return the member that `steps` lead to. A missing member has the value None."""
        value = self.value
        for step in steps:
            value = value.get(step) if isinstance(value, dict) else None
        return Node(value, self.uri, (*self.pointer, *steps))

    @property
    def object(self) -> JsonObject:
        """The value if it is an object, or else an empty object."""
        return self.value if isinstance(self.value, dict) else {}

    def items(self) -> "list[Node]":
        given = self.value if isinstance(self.value, list) else []
        return [Node(each, self.uri, (*self.pointer, str(index))) for index, each in enumerate(given)]

    def members(self) -> "list[tuple[str, Node]]":
        return [(name, self.at(name)) for name in self.object]

    @property
    def place(self) -> tuple[str, tuple[str, ...]]:
        return self.uri, self.pointer

    @property
    def shown(self) -> str:
        return "#" + "".join(f"/{step.replace('~', '~0').replace('/', '~1')}" for step in self.pointer)


class References:
    """Resolves references, and reads each document only once."""

    def __init__(self, open_document: Callable[[str], Json]) -> None:
        """Create the resolver. `open_document` raises `DocumentError` if a document must not be read."""

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
        """Follow a chain of references to the first node that is not a reference.

        Raises:
            DocumentError: a target does not exist, or the references form a cycle.
        """
        for _ in range(_MAX_CHAIN):
            reference = node.object.get("$ref")
            if not isinstance(reference, str):
                return node
            node = self.resolve(reference, base=node.uri)
        raise DocumentError(f"the references at {node.shown} form a cycle")


def _steps(fragment: str) -> tuple[str, ...]:
    # RFC 6901 §4 requires this order, so that `~01` becomes `~1` and not `/`.
    return tuple(step.replace("~1", "/").replace("~0", "~") for step in fragment.split("/")[1:])
