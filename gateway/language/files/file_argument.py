"""A decoded file in the arguments of a call.

In templates and logs, a file is an object with `name`, `type` and `size`.
"""

import base64
import hashlib
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from gateway.json_types import Json, JsonObject

_MEMBERS: Final = ("name", "type", "size")


# Not a dataclass, because orjson would write the fields instead of calling `default`.
class FileArgument(Mapping[str, Json]):
    __slots__ = ("data", "media_type", "name")

    def __init__(self, data: bytes, *, media_type: str | None = None, name: str | None = None) -> None:
        self.data: Final = data
        self.media_type: Final = media_type
        """In lower case, without parameters. None if unknown."""
        self.name: Final = name
        """File name from the caller, unverified."""

    @property
    def base64(self) -> str:
        return base64.b64encode(self.data).decode()

    def __getitem__(self, member: str) -> Json:
        if member not in _MEMBERS:
            raise KeyError(member)
        return {"name": self.name, "type": self.media_type, "size": len(self.data)}[member]

    def __iter__(self) -> Iterator[str]:
        return iter(_MEMBERS)

    def __len__(self) -> int:
        return len(_MEMBERS)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, FileArgument):
            return False
        return (self.data, self.media_type, self.name) == (other.data, other.media_type, other.name)

    def __hash__(self) -> int:
        return hash((self.data, self.media_type, self.name))

    @property
    def key(self) -> JsonObject:
        return {"file": [hashlib.sha256(self.data).hexdigest(), self.media_type, self.name]}


def with_files_replaced(value: Json, replace: Callable[[FileArgument], Json]) -> Json:
    match value:
        # This case must come before `Mapping`, because a file is also a `Mapping`.
        case FileArgument():
            return replace(value)
        case Mapping():
            return {name: with_files_replaced(member, replace) for name, member in value.items()}
        case list():
            return [with_files_replaced(item, replace) for item in value]
        case _:
            return value


def json_with_files(value: Json) -> Json:
    """Return a copy of a value with files as base64."""
    return with_files_replaced(value, lambda file: file.base64)
