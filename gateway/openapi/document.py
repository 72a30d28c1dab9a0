"""Reads JSON and YAML documents."""

import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

import msgspec
import orjson

from gateway.config.reading.composer import compose
from gateway.config.reading.nodes import plain
from gateway.config.reading.source_file import SourceFile, UnreadableError, decode, digest, read_bytes
from gateway.json_types import Json, JsonObject
from gateway.net.request import parse_url

MAX_BYTES: Final = 32 * 2**20
"""The limit in bytes for a document with all documents that it references."""
_MAX_NODES: Final = 3_000_000

_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*")


class DocumentError(Exception):
    """The document, or a part of it, cannot be used."""


class MissingDocumentError(DocumentError):
    """A document could not be read or fetched. A later attempt can succeed."""


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


class Source(msgspec.Struct, frozen=True, kw_only=True):
    uri: str
    """The absolute base URI of references in the document."""
    path: Path
    data: bytes

    @property
    def is_json(self) -> bool:
        # A URL need not end in .json, and servers use many media types.
        return self.data.lstrip()[:1] == b"{" or self.data.startswith(b"\xef\xbb\xbf{")


def read(source: Source) -> JsonObject:
    """Decode a document.

    Raises:
        DocumentError: the document is malformed or its root is not an object. The message starts with the position.
    """
    root = _from_json(source) if source.is_json else _from_yaml(source)
    if not isinstance(root, dict):
        raise DocumentError(f"{source.path.name} is not an OpenAPI document: its root must be an object")
    return root


class LocalDocuments:
    """A document in a file, with the referenced files in its directory."""

    def __init__(self, path: Path) -> None:
        self.uri: Final = path.absolute().as_uri()
        self.files: Final[dict[Path, str]] = {}
        """The SHA-256 of each requested file, or an empty string if it cannot be read."""
        self.sources: Final[dict[str, Source]] = {}
        self._path: Final = path.absolute()
        self._directory: Final = os.path.realpath(path.parent)
        self._room = MAX_BYTES

    def open(self, uri: str) -> JsonObject:
        """Read a document.

        Raises:
            DocumentError: the file is outside the directory or cannot be read.
        """
        return read(self.source(uri))

    def source(self, uri: str) -> Source:
        """Return the bytes of a document. Raises like `open`."""
        if uri not in self.sources:
            path = self._path if uri == self.uri else self._allowed(uri)
            self.sources[uri] = Source(uri=uri, path=path, data=self._read(path))
        return self.sources[uri]

    def _allowed(self, uri: str) -> Path:
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
            raise MissingDocumentError(f"cannot read {path}: {error}") from error
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


def _from_json(source: Source) -> Json:
    try:
        # RFC 8259 §8.1 lets a parser ignore a byte order mark. orjson rejects it.
        return orjson.loads(source.data.removeprefix(b"\xef\xbb\xbf"))
    except orjson.JSONDecodeError as error:
        raise DocumentError(f"{source.path.name}:{error.lineno}:{error.colno}: not JSON: {error.msg}") from error


def _from_yaml(source: Source) -> Json:
    try:
        text = decode(source.data)
    except UnreadableError as error:
        raise DocumentError(f"{source.path.name}:{error.line}:{error.column}: {error}") from error
    # Status codes are usually written without quotes, so they are integers in YAML (`200:`).
    composition = compose(SourceFile(source.path, text), has_scalar_keys=True, max_nodes=_MAX_NODES)
    if composition.root is None:
        first = next(iter(composition.diagnostics), None)
        where = "" if first is None or first.place is None else f":{first.place.line}:{first.place.column}"
        raise DocumentError(f"{source.path.name}{where}: {first.message if first else 'is empty'}")
    return plain(composition.root)
