"""Reads one document, JSON or YAML, and finds the place of a node in its text again.

JSON is decoded by orjson, which knows no places: a document of 13 MB takes a tenth of a second, and only what is wrong
needs a place. It is found then, by decoding up to it.
"""

import json
import re
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec
import orjson

from gateway.config.reading.composer import compose
from gateway.config.reading.nodes import find, place_of, plain
from gateway.config.reading.source_file import SourceFile, UnreadableError, decode
from gateway.errors import Location
from gateway.json_types import Json, JsonObject
from gateway.net.request import parse_url

MAX_BYTES: Final = 32 * 2**20
"""The largest document, with all that it refers to."""
_MAX_NODES: Final = 3_000_000

_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*")
_SPACE: Final = re.compile(r"[ \t\r\n]*")
_DECODER: Final = json.JSONDecoder()


class DocumentError(Exception):
    """A document, or a part of it, cannot be used; the text is for the operator."""

    def __init__(self, message: str, *, pointer: tuple[str, ...] | None = None) -> None:
        super().__init__(message)
        self.pointer = pointer
        """The place of what is wrong, where that is not the operation itself."""


class MissingDocumentError(DocumentError):
    """A document could not be read or fetched; it may be, later."""


def check_readable(document: str) -> None:
    """Check that a document is named by a path or a URL that is read here.

    Raises:
        DocumentError: it is no URL, or has another scheme.
    """
    scheme, separator, path = document.partition("://")
    if not separator or not _SCHEME.fullmatch(scheme):
        return
    if scheme.lower() in {"http", "https"}:
        with suppress(ValueError):
            if parse_url(document).host:
                return
        raise DocumentError("is no URL such as https://api.example.com/openapi.json")
    hint = f"; write its path: {path}" if scheme.lower() == "file" else ""
    raise DocumentError(f"a document is read from a file, or by http: or https:, and not by {scheme}:{hint}")


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """The bytes of one document, and what it is called."""

    uri: str
    """Its absolute URI: what references in it are relative to."""
    path: Path
    """The file for messages; of a document with a URL, that as it is written."""
    data: bytes

    @property
    def is_json(self) -> bool:
        # By what it begins with: a URL need not end in .json, and servers give documents all kinds of media types.
        return self.data.lstrip()[:1] == b"{" or self.data.startswith(b"\xef\xbb\xbf{")


def read(source: Source) -> JsonObject:
    """Decode a document, whose root is an object.

    Raises:
        DocumentError: it cannot be read; the text begins with the place.
    """
    root = _from_json(source) if source.is_json else _from_yaml(source)
    if not isinstance(root, dict):
        raise DocumentError(f"{source.path.name} is no OpenAPI document: expected an object at its root")
    return root


def version_of(root: JsonObject) -> str:
    """The version of OpenAPI that a document is written in.

    Raises:
        DocumentError: it is not read here.
    """
    version = str(root.get("openapi", ""))
    if version.startswith("3."):
        return version
    found = f"OpenAPI {version}" if version else f"Swagger {root['swagger']}" if "swagger" in root else "not OpenAPI"
    raise DocumentError(f"is {found}. Use OpenAPI 3.x or Swagger 2.0")


def location_of(source: Source, pointer: tuple[str, ...]) -> Location:
    """The place of a node, or of the last node on the way to it that there is."""
    try:
        text = decode(source.data)
        offset = _offset_in_json(text, pointer) if source.is_json else None
        if offset is None:
            return _location_in_yaml(source, text, pointer)
    # The place is for a message about something else, which must not be lost for want of it.
    except (UnreadableError, ValueError, RecursionError):
        return Location(file=source.path, line=1, column=1)
    line_start = text.rfind("\n", 0, offset) + 1
    return Location(file=source.path, line=text.count("\n", 0, offset) + 1, column=offset - line_start + 1)


def _from_json(source: Source) -> Json:
    try:
        # RFC 8259 §8.1 lets a parser ignore a byte order mark; orjson refuses it.
        return orjson.loads(source.data.removeprefix(b"\xef\xbb\xbf"))
    except orjson.JSONDecodeError as error:
        raise DocumentError(f"{source.path.name}:{error.lineno}:{error.colno}: not JSON: {error.msg}") from error


def _from_yaml(source: Source) -> Json:
    try:
        text = decode(source.data)
    except UnreadableError as error:
        raise DocumentError(f"{source.path.name}:{error.line}:{error.column}: {error}") from error
    # Status codes are mostly written without quotes (`200:`), which makes them numbers to YAML.
    composition = compose(SourceFile(source.path, text), has_scalar_keys=True, max_nodes=_MAX_NODES)
    if composition.root is None:
        first = next(iter(composition.diagnostics), None)
        where = "" if first is None or first.place is None else f":{first.place.line}:{first.place.column}"
        raise DocumentError(f"{source.path.name}{where}: {first.message if first else 'is empty'}")
    return plain(composition.root)


def _location_in_yaml(source: Source, text: str, pointer: tuple[str, ...]) -> Location:
    composition = compose(SourceFile(source.path, text), has_scalar_keys=True, max_nodes=_MAX_NODES)
    if composition.root is None:
        return Location(file=source.path, line=1, column=1)
    steps = tuple(int(step) if _is_index(step) else step for step in pointer)
    entry, node, _ = find(composition.root, steps)
    place = place_of(entry, node)
    return Location(file=source.path, line=place.line, column=place.column)


def _is_index(step: str) -> bool:
    # A JSON Pointer does not tell an index from a key: three digits are taken for a key of `responses`, and so are more
    # digits than a list has items.
    return step.isdecimal() and len(step) < 10 and len(step) != 3


def _offset_in_json(text: str, pointer: tuple[str, ...]) -> int:
    """The offset of a value in JSON: what stands before it is decoded and dropped."""
    at = _skip(text, 0)
    for step in pointer:
        found = _member(text, at, step) if text[at] == "{" else _item(text, at, step)
        if found is None:
            break
        at = found
    return at


def _member(text: str, at: int, name: str) -> int | None:
    at = _skip(text, at + 1)
    while text[at] == '"':
        key, at = _DECODER.raw_decode(text, at)
        at = _skip(text, _skip(text, at) + 1)
        if key == name:
            return at
        _, at = _DECODER.raw_decode(text, at)
        at = _skip(text, _skip(text, at) + 1)
    return None


def _item(text: str, at: int, index: str) -> int | None:
    if text[at] != "[" or not index.isdecimal():
        return None
    at = _skip(text, at + 1)
    for _ in range(int(index)):
        _, at = _DECODER.raw_decode(text, at)
        at = _skip(text, _skip(text, at) + 1)
    return at


def _skip(text: str, at: int) -> int:
    space = _SPACE.match(text, at)
    return at if space is None else space.end()
