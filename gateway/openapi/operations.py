import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Final

import msgspec

from gateway.config.models.openapi import OperationFilter
from gateway.json_types import Json
from gateway.openapi.document import DocumentError, Node, References

METHODS: Final = ("get", "head", "post", "put", "patch", "delete", "options", "trace")
_OTHER_METHODS: Final = frozenset({"query", "additionalOperations"})
"""Keys of operations whose methods are not supported (OpenAPI 3.2 "Path Item Object")."""
MAX_NAME: Final = 64
_HASH_DIGITS: Final = 6
_OTHERS: Final = re.compile(r"[^A-Za-z0-9_-]+")
_WORDS: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[_-])")


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    method: str
    path: str
    node: Node
    items: tuple[Node, ...]
    """The path item, followed by its target if the path item is a reference."""

    @property
    def key(self) -> str:
        """The name in lists and messages, such as `GET /items/{id}`."""
        return f"{self.method.upper()} {self.path}"

    @property
    def id(self) -> str | None:
        value = self.node.value.get("operationId")
        return value if isinstance(value, str) and value.strip() else None

    @property
    def tags(self) -> list[str]:
        tags = self.node.value.get("tags")
        return [tag for tag in tags if isinstance(tag, str)] if isinstance(tags, list) else []

    @property
    def is_deprecated(self) -> bool:
        return self.node.value.get("deprecated") is True

    def extension(self, member: str, *around: Node) -> Json:
        """Return a member of `x-mcp` from the operation, else from its path item, else from the nodes in `around`."""
        for node in (self.node, *self.items, *around):
            said = node.at("x-mcp").object
            if member in said:
                return said[member]
        return None

    def fits(self, pattern: str) -> bool:
        method, space, path = pattern.partition(" ")
        if pattern == "*":  # also matches an operation without an operationId
            return True
        if space and path.startswith(("/", "*")):
            # Compare for equality first, because `fnmatch` would read brackets in a path as a character set.
            return method.lower() in {"*", self.method} and (self.path == path or fnmatchcase(self.path, path))
        return self.id is not None and (self.id == pattern or fnmatchcase(self.id, pattern))


def operations_of(root: Node, references: References) -> Iterator[Operation | tuple[str, DocumentError]]:
    """Yield all operations in document order. For an unreadable operation, yield its key and the error instead."""
    paths = root.at("paths")
    for written in paths.object:
        if written.startswith("x-"):  # an extension
            continue
        # Some documents write paths without the slash, and methods in upper case.
        path = written if written.startswith("/") else f"/{written}"
        try:
            target = references.follow(paths.at(written))
        except DocumentError as error:
            yield f"* {path}", error
            continue
        # OpenAPI 3.1 "Path Item Object": a reference can have operations and parameters beside it.
        own = paths.at(written)
        items = (target,) if target.place == own.place else (own, target)
        found = {method: item for item in reversed(items) for method, _ in item.members()}
        for method, item in found.items():
            if method.lower() in METHODS:
                yield _operation(method.lower(), path, item.at(method), items, references)
            elif method in _OTHER_METHODS:
                others = [method] if method == "query" else item.at(method).value
                for other in others if isinstance(others, dict | list) else ():
                    yield f"{other.upper()} {path}", DocumentError("the method is not supported")


def _operation(
    method: str, path: str, given: Node, items: tuple[Node, ...], references: References
) -> Operation | tuple[str, DocumentError]:
    try:
        node = references.follow(given)
    except DocumentError as error:
        return f"{method.upper()} {path}", error
    if not isinstance(node.value, dict):
        return f"{method.upper()} {path}", DocumentError("it is not an object")
    return Operation(method=method, path=path, node=node, items=items)


def is_chosen(operation: Operation, chosen: OperationFilter) -> bool:
    return (
        (not chosen.tags or any(fnmatchcase(tag, each) for each in chosen.tags for tag in operation.tags))
        and (not chosen.operations or any(map(operation.fits, chosen.operations)))
        and (not chosen.methods or operation.method in chosen.methods)
        and (chosen.deprecated is None or chosen.deprecated is operation.is_deprecated)
    )


def names_of(wanted: Mapping[str, str], *, prefix: str) -> dict[str, str]:
    """Return a unique name for each operation. The order of the operations does not affect the names.

    Long names are shortened at a word boundary. Shortened and duplicate names get a hash as a suffix.
    """
    plain = {key: f"{prefix}{clean(name)}" for key, name in wanted.items()}
    counts = Counter(plain.values())
    # Hash all duplicates. If one kept its name, the names would depend on the order of the document.
    hashed = {key for key, name in plain.items() if counts[name] > 1 or len(name) > MAX_NAME}
    return {
        key: f"{_whole_words(name, at_most=MAX_NAME - _HASH_DIGITS - 1)}_{hash_of(key)}" if key in hashed else name
        for key, name in plain.items()
    }


def clean(name: str) -> str:
    return _OTHERS.sub("_", name).strip("_") or "operation"


def hash_of(key: str) -> str:
    """Return six hexadecimal digits that make a name unique."""
    return hashlib.sha256(key.encode()).hexdigest()[:_HASH_DIGITS]


def _whole_words(name: str, *, at_most: int) -> str:
    if len(name) <= at_most:
        return name.rstrip("_-")
    ends = [match.start() for match in _WORDS.finditer(name) if match.start() <= at_most]
    # If the last word is very long, shorten it instead of removing it.
    return name[: ends[-1] if ends and ends[-1] > at_most // 2 else at_most].rstrip("_-")


def unmatched(patterns: Iterable[str], operations: Sequence[Operation]) -> list[str]:
    return [pattern for pattern in patterns if not any(each.fits(pattern) for each in operations)]
