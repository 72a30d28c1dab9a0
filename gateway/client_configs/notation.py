"""The interface of a notation."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from gateway.json_types import Json


class NotEditableError(Exception):
    """The text cannot be edited safely; the message says why."""


class Notation(Protocol):
    """The format of a client's configuration file."""

    @property
    def name(self) -> str:
        """The name of the format in lower case."""

    def render(self, document: Mapping[str, Json]) -> str:
        """Write a document as a person would paste it."""

    def parse(self, text: str) -> Json:
        """Read a document. An empty text is an empty object.

        Raises:
            NotEditableError: the text is not in this notation.
        """

    def put(self, text: str, path: Sequence[str], value: Json) -> str:
        """Put a value at a path of keys, in place of what is there; the rest of the text stays as it is.

        Raises:
            NotEditableError: the text has something else on the way there.
        """


def nested(path: Sequence[str], value: Json) -> dict[str, Json]:
    """The object that has a value at a path of keys."""
    for key in reversed(path):
        value = {key: value}
    assert isinstance(value, dict)  # noqa: S101 - a path has a key
    return value
