"""What a YAML file says, as a tree that remembers where each key and each value was written. Values only."""

from collections.abc import Mapping as Map
from dataclasses import dataclass
from typing import Final, Protocol

from gateway.config.problems import DocumentPath
from gateway.config.reading.source_file import SourceFile
from gateway.errors import Severity
from gateway.json_types import Json


class Mark(Protocol):
    """A YAML mark; both count from 0."""

    @property
    def line(self) -> int: ...
    @property
    def column(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Point:
    """A mark of our own."""

    line: int
    column: int


START: Final = Point(0, 0)


@dataclass(frozen=True, slots=True)
class Place:
    """A point in a file; counts from 1."""

    source: SourceFile
    line: int
    column: int

    def __str__(self) -> str:
        return str(self.source.location(self.line, self.column))


class Broken(str):
    """Stands where a value could not be had, and the reason has been reported; nothing more is said about it."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Scalar:
    value: bool | int | float | str | None
    source: SourceFile
    start: Mark
    end: Mark
    size: int = 1


@dataclass(frozen=True, slots=True)
class Sequence:
    items: tuple["Node", ...]
    source: SourceFile
    start: Mark
    is_flow: bool
    size: int
    """Nodes in it once aliases are expanded, itself included."""


@dataclass(frozen=True, slots=True)
class Mapping:
    entries: Map[str, "Entry"]
    source: SourceFile
    start: Mark
    is_flow: bool
    size: int


Node = Scalar | Sequence | Mapping


@dataclass(frozen=True, slots=True)
class Entry:
    """One `key: value`; a merged one (`<<`) keeps the place where it was written."""

    source: SourceFile
    key_start: Mark
    node: Node

    @property
    def place(self) -> Place:
        return place_at(self.source, self.key_start)

    @property
    def is_empty(self) -> bool:
        """Whether the key stands there without a value."""
        return isinstance(self.node, Scalar) and self.node.value is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A mistake with its place, before the source line is cut out and masked."""

    message: str
    path: DocumentPath = ()
    place: Place | None = None
    severity: Severity = Severity.ERROR


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """A node, where it stands in the document, and its key if it has one."""

    node: Node
    path: DocumentPath
    entry: Entry | None = None


def place_at(source: SourceFile, mark: Mark) -> Place:
    return Place(source, mark.line + 1, mark.column + 1)


def place_of(entry: Entry | None, node: Node) -> Place:
    """Where a reader looks for a node: at the value, or at its key when the value is a block on the next line."""
    if entry is not None and not isinstance(node, Scalar) and not node.is_flow:
        return entry.place
    if entry is not None and entry.is_empty:
        return entry.place
    return place_at(node.source, node.start)


def find(root: Node, path: DocumentPath, *, entry: Entry | None = None) -> tuple[Entry | None, Node, int]:
    """Walk as far along `path` as was written: the node there, its own entry if it has one, and the steps taken."""
    node = root
    for taken, key in enumerate(path):
        if isinstance(node, Mapping) and isinstance(key, str) and key in node.entries:
            entry = node.entries[key]
            node = entry.node
        elif isinstance(node, Sequence) and isinstance(key, int) and 0 <= key < len(node.items):
            node = node.items[key]
            entry = None
        elif key == 0 and not isinstance(node, Sequence):  # a list of one, written without its brackets
            continue
        else:
            return entry, node, taken
    return entry, node, len(path)


def plain(node: Node) -> Json:
    """The tree as dictionaries, lists and scalars, nothing interpolated."""
    match node:
        case Scalar(value=value):
            return value
        case Sequence(items=items):
            return [plain(item) for item in items]
        case Mapping(entries=entries):
            return {key: plain(entry.node) for key, entry in entries.items()}
