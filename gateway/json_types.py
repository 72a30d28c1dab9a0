"""The one alias through which `Any` enters: values that came from, or go to, JSON."""

from collections.abc import Mapping
from typing import Any, TypeAlias

Json: TypeAlias = Any
"""Null, boolean, number, string, list or object, as `orjson.loads` gives them."""

JsonObject: TypeAlias = Mapping[str, Json]
