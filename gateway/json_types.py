"""The one alias through which `Any` enters: values that came from, or go to, JSON."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, TypeAlias

Json: TypeAlias = Any
"""Null, boolean, number, string, list or object, as `orjson.loads` gives them."""

JsonObject: TypeAlias = Mapping[str, Json]

DocumentPath: TypeAlias = tuple[str | int, ...]
"""Keys and indexes from the root of a document, such as the merged file: `("tools", "x", "shell", "command", 0)`."""

_EMPTY: Final[Mapping[str, Any]] = MappingProxyType({})


def empty() -> Mapping[str, Any]:
    """The empty mapping, as a `default_factory`: frozen values share it."""
    return _EMPTY


ABSENT: Final[Json] = object()
"""No value at all, where None would be JSON's null."""


def present(value: JsonObject) -> JsonObject:
    """Return an object without the members that are null, as several clients write optional ones."""
    return {name: member for name, member in value.items() if member is not None} if None in value.values() else value
