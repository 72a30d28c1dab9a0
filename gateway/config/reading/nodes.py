"""The tree of a YAML or JSON file, with the position of each key and value."""

from collections.abc import Mapping as Map

import msgspec

from gateway.config.reading.source_file import SourceFile
from gateway.errors import Severity
from gateway.json_types import DocumentPath, Json


class Place(msgspec.Struct, frozen=True):
    """A position in a file. Line and column count from 1."""

    source: SourceFile
    line: int
    column: int


class Invalid(str):
    """Placeholder for a value that could not be read. The error has already been reported."""

    __slots__ = ()


class Scalar(msgspec.Struct, frozen=True):
    value: bool | int | float | str | None
    place: Place
    end: Place


class Sequence(msgspec.Struct, frozen=True):
    items: tuple["Node", ...]
    place: Place
    end: Place
    is_flow: bool = True


class Mapping(msgspec.Struct, frozen=True):
    entries: Map[str, "MapItem"]
    place: Place
    end: Place
    is_flow: bool = True


Node = Scalar | Sequence | Mapping


class MapItem(msgspec.Struct, frozen=True):
    """The position of a key, and its value. A pair merged by `<<` keeps its original position."""

    place: Place
    node: Node

    @property
    def is_empty(self) -> bool:
        return isinstance(self.node, Scalar) and self.node.value is None


class Diagnostic(msgspec.Struct, frozen=True, kw_only=True):
    """An error or warning, before its source line is looked up."""

    message: str
    path: DocumentPath = ()
    place: Place | None = None
    severity: Severity = Severity.ERROR


def place_of(entry: MapItem | None, node: Node) -> Place:
    """Return the position of a value, or the position of its key if the value is empty or starts on the next line."""
    if entry is not None and (entry.is_empty or not (isinstance(node, Scalar) or node.is_flow)):
        return entry.place
    return node.place


def find(root: Node, path: DocumentPath, *, entry: MapItem | None = None) -> tuple[MapItem | None, Node, int]:
    """Follow `path` as far as nodes exist. Return the last node's `MapItem`, the node, and the number of steps."""
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
    """Convert a tree of nodes to dictionaries, lists and scalars, without interpolation."""
    match node:
        case Scalar(value=value):
            return value
        case Sequence(items=items):
            return [plain(item) for item in items]
        case Mapping(entries=entries):
            return {key: plain(entry.node) for key, entry in entries.items()}
