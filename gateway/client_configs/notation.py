"""The interface of a file format."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from gateway.json_types import Json


class NotEditableError(Exception):
    """The text cannot be edited safely."""


class Notation(Protocol):
    """The format of a client's configuration file."""

    @property
    def name(self) -> str:
        """Name of the format, in lower case."""

    def render(self, document: Mapping[str, Json]) -> str:
        """Format a document for pasting."""

    def parse(self, text: str) -> Json:
        """Parse a document. An empty text is an empty object.

        Raises:
            NotEditableError: the text is invalid.
        """

    def put(self, text: str, path: Sequence[str], value: Json) -> str:
        """Set the value at a path of keys. The rest of the text does not change.

        Raises:
            NotEditableError: a value on the path is not a mapping.
        """


def nested(path: Sequence[str], value: Json) -> dict[str, Json]:
    """Return an object with the value at a path of keys."""
    for key in reversed(path):
        value = {key: value}
    assert isinstance(value, dict)  # noqa: S101 - a path has a key
    return value
