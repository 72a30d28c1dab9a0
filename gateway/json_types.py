"""Types of JSON values."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, TypeAlias

Json: TypeAlias = Any
"""Null, boolean, number, string, list or object, as decoded by `orjson.loads`."""

JsonObject: TypeAlias = Mapping[str, Json]

DocumentPath: TypeAlias = tuple[str | int, ...]
"""The keys and indexes that lead to a value in a document, such as `("tools", "x", "shell", "command", 0)`."""

_EMPTY: Final[Mapping[str, Any]] = MappingProxyType({})


def empty() -> Mapping[str, Any]:
    """Return a shared empty mapping, for use as `default_factory`."""
    return _EMPTY


class _Absent:
    __slots__ = ()

    def __bool__(self) -> bool:
        return False


ABSENT: Final[Json] = _Absent()
"""A missing value, as opposed to JSON null. In conditions, ABSENT is false."""
