"""Marks the keys that name an entry of a section, such as `connection` and `database`; finds what a definition names.

Whatever depends on such an entry follows from the mark: a definition is compiled again when the entry changes, its
digest in the lock has the entry's, and an error in the entry is not repeated where it is named.
"""

from collections.abc import Iterator
from functools import cache
from typing import TypeVar, get_args

import msgspec

from gateway.config.models.base import Model

M = TypeVar("M", bound=Model)


class EntryOf(msgspec.Struct, frozen=True):
    """Says of a field that its text is the name of an entry of `section`."""

    section: str


def entries_named_by(config: Model) -> Iterator[tuple[str, str]]:
    """Yield the section and name of each entry that a definition names, at any depth."""
    for model in models_in(config, Model):
        for field, section in _naming_fields(type(model)):
            if (name := getattr(model, field)) is not None:
                yield section, name


def models_in(value: object, kind: type[M]) -> Iterator[M]:
    """Yield the models of a kind within a value, itself included."""
    match value:
        case Model():
            if isinstance(value, kind):
                yield value
            for name in _holding_fields(type(value)):
                if member := getattr(value, name):  # most fields are not given
                    yield from models_in(member, kind)
        case dict():
            for member in value.values():
                yield from models_in(member, kind)
        case list() | tuple():
            for item in value:
                yield from models_in(item, kind)


@cache
def _holding_fields(model: type[Model]) -> tuple[str, ...]:
    """The fields whose types admit models; the others may be large, as schemas are."""
    return tuple(name for name, field in model.model_fields.items() if _admits_models(field.annotation))


def _admits_models(annotation: object) -> bool:
    arguments = get_args(annotation)
    return any(map(_admits_models, arguments)) or (isinstance(annotation, type) and issubclass(annotation, Model))


@cache
def _naming_fields(model: type[Model]) -> tuple[tuple[str, str], ...]:
    """The fields of a model that name entries, each with the section."""
    return tuple(
        (name, mark.section)
        for name, field in model.model_fields.items()
        for mark in field.metadata
        if isinstance(mark, EntryOf)
    )
