"""The tree of a YAML file, with the position of each key and value."""

from collections.abc import Mapping as Map
from typing import Final, Protocol

import msgspec

from gateway.config.reading.source_file import SourceFile
from gateway.errors import Severity
from gateway.json_types import DocumentPath, Json


class Mark(Protocol):
    """Line and column, counted from 0, as in PyYAML."""

    @property
    def line(self) -> int: ...
    @property
    def column(self) -> int: ...


class Point(msgspec.Struct, frozen=True):
    line: int
    column: int


START: Final = Point(0, 0)


class Place(msgspec.Struct, frozen=True):
    """A position in a file. Line and column count from 1."""

    source: SourceFile
    line: int
    column: int


class Invalid(str):
    """Replaces an unreadable value, whose error has been reported."""

    __slots__ = ()


class Scalar(msgspec.Struct, frozen=True):
    value: bool | int | float | str | None
    source: SourceFile
    start: Mark
    end: Mark
    size: int = 1


class Sequence(msgspec.Struct, frozen=True):
    items: tuple["Node", ...]
    source: SourceFile
    start: Mark
    is_flow: bool
    size: int
    """Number of nodes after alias expansion, including this one."""


class Mapping(msgspec.Struct, frozen=True):
    entries: Map[str, "MapItem"]
    source: SourceFile
    start: Mark
    is_flow: bool
    size: int


Node = Scalar | Sequence | Mapping


class MapItem(msgspec.Struct, frozen=True):
    """A `key: value` pair. An entry merged by `<<` keeps its original position."""

    source: SourceFile
    key_start: Mark
    node: Node

    @property
    def place(self) -> Place:
        return place_at(self.source, self.key_start)

    @property
    def is_empty(self) -> bool:
        return isinstance(self.node, Scalar) and self.node.value is None


class Diagnostic(msgspec.Struct, frozen=True, kw_only=True):
    """An error or warning without its source line."""

    message: str
    path: DocumentPath = ()
    place: Place | None = None
    severity: Severity = Severity.ERROR


class NodeRef(msgspec.Struct, frozen=True, kw_only=True):
    """A node, its path in the document, and its key."""

    node: Node
    path: DocumentPath
    entry: MapItem | None = None


def place_at(source: SourceFile, mark: Mark) -> Place:
    return Place(source, mark.line + 1, mark.column + 1)


def place_of(entry: MapItem | None, node: Node) -> Place:
    """Return the position of the value, or that of the key if the value is a block on the next line."""
    if entry is not None and not isinstance(node, Scalar) and not node.is_flow:
        return entry.place
    if entry is not None and entry.is_empty:
        return entry.place
    return place_at(node.source, node.start)


def find(root: Node, path: DocumentPath, *, entry: MapItem | None = None) -> tuple[MapItem | None, Node, int]:
    """Follow `path` as far as the file contains it. Return the entry, the node and the number of steps."""
    node = root
    for taken, key in enumerate(path):
        if isinstance(node, Mapping) and isinstance(key, str) and key in node.entries:
            entry = node.entries[key]
            node = entry.node
        elif isinstance(node, Sequence) and isinstance(key, int) and 0 <= key < len(node.items):
            node = node.items[key]
            entry = None
        elif key == 0 and not isinstance(node, Sequence):  # a list with one item can be written without brackets
            continue
        else:
            return entry, node, taken
    return entry, node, len(path)


def plain(node: Node) -> Json:
    """Convert the tree to dictionaries, lists and scalars, without interpolation."""
    match node:
        case Scalar(value=value):
            return value
        case Sequence(items=items):
            return [plain(item) for item in items]
        case Mapping(entries=entries):
            return {key: plain(entry.node) for key, entry in entries.items()}
