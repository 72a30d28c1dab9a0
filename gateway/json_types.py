"""The one alias through which `Any` enters: values that came from, or go to, JSON."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, TypeAlias

Json: TypeAlias = Any
"""Null, boolean, number, string, list or object, as `orjson.loads` gives them."""

JsonObject: TypeAlias = Mapping[str, Json]

_EMPTY: Final[Mapping[str, Any]] = MappingProxyType({})


def empty() -> Mapping[str, Any]:
    """The empty mapping, as a `default_factory`: frozen values share it."""
    return _EMPTY
