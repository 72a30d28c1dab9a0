"""Definitions without secrets: what clients list must not hold one, though an author put it there.

A variable is a secret where it stands in a header, and plain text in a description: as text that is passed on it is
masked like any other. A URI would lead nowhere with a mask in it, so there it is a mistake.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final, TypeVar

from gateway.catalog.primitives import Primitive
from gateway.config.problems import Problems
from gateway.config.secrets import Redactor
from gateway.json_types import Json

K = TypeVar("K")
P = TypeVar("P", bound=Primitive)

_NAMES: Final = ("name", "uri", "uriTemplate")


def silenced(primitives: Mapping[K, P], *, redactor: Redactor, problems: Problems) -> dict[K, P]:
    """The primitives, with secrets in their definitions masked; each is reported. `problems` views their section."""
    everything = "\n".join(text for each in primitives.values() for text in _texts(each.definition))
    if not redactor.finds(everything):
        return dict(primitives)
    return {
        key: _silenced(each, redactor=redactor, problems=problems.at(each.name)) for key, each in primitives.items()
    }


def silenced_text(text: str | None, *, redactor: Redactor, problems: Problems) -> str | None:
    """The same for a text of the server's own."""
    if text is None or not redactor.finds(text):
        return text
    problems.warning(_ADVICE)
    return redactor.text(text)


_ADVICE: Final = "holds what is a secret elsewhere in the file, and clients see this: it is masked; take it out"


def _silenced(primitive: P, *, redactor: Redactor, problems: Problems) -> P:
    masked = redactor.json(primitive.definition)
    if masked == primitive.definition:
        return primitive
    if any(masked.get(key) != primitive.definition.get(key) for key in _NAMES):
        problems.error("its name or URI holds what is a secret elsewhere in the file, and clients see these")
    else:
        problems.warning(_ADVICE)
    return replace(primitive, definition=masked)


def _texts(value: Json) -> Iterator[str]:
    match value:
        case str():
            yield value
        case Mapping():
            for name, member in value.items():
                yield name
                yield from _texts(member)
        case list() | tuple():
            for item in value:
                yield from _texts(item)
        case int() | float():
            yield str(value)
