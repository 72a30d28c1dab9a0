"""The title of a client: what it calls itself, for people."""

from functools import lru_cache
from typing import Final

from gateway.json_types import JsonObject

_MAX_LENGTH: Final = 60
"""Characters of a client's name for itself, which it chooses freely."""


def title_of(client_info: JsonObject) -> str:
    """The name and version that the client gives itself; `unnamed` without."""
    name, version = client_info.get("name"), client_info.get("version")
    return _title(name if isinstance(name, str) else "", version if isinstance(version, str) else "")


@lru_cache(maxsize=64)
def _title(name: str, version: str) -> str:
    return " ".join(filter(None, (name, version)))[:_MAX_LENGTH] or "unnamed"
