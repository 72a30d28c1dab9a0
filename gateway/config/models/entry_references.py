"""Marks keys that refer to an entry of another section, such as `connection`, and finds these references.

If an entry changes, the definitions that refer to it are compiled again and get new digests in the lock file. An error
in an entry is reported once, not for each definition.
"""

from collections.abc import Iterator
from functools import cache
from typing import TypeVar, get_args

import msgspec

from gateway.config.models.base import Model

M = TypeVar("M", bound=Model)


class EntryOf(msgspec.Struct, frozen=True):
    """Marks a field that names an entry of `section`."""

    section: str


def entries_named_by(config: Model) -> Iterator[tuple[str, str]]:
    """Yield the section and name of each entry that a definition refers to, at any depth."""
    for model in models_in(config, Model):
        for field, section in _naming_fields(type(model)):
            if (name := getattr(model, field)) is not None:
                yield section, name


def models_in(value: object, kind: type[M]) -> Iterator[M]:
    """Yield the models of a class in a value, including the value itself."""
    if isinstance(value, dict):
        for member in value.values():
            yield from models_in(member, kind)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from models_in(item, kind)
    elif isinstance(value, Model):
        if isinstance(value, kind):
            yield value
        for name in _fields_with_models(type(value)):
            if member := getattr(value, name):  # most fields are unset
                yield from models_in(member, kind)


@cache  # most fields hold plain values, some of them large JSON Schemas
def _fields_with_models(model: type[Model]) -> tuple[str, ...]:
    return tuple(name for name, field in model.model_fields.items() if _names_model(field.annotation))


def _names_model(annotation: object) -> bool:
    is_model = isinstance(annotation, type) and issubclass(annotation, Model)
    return is_model or any(map(_names_model, get_args(annotation)))


@cache
def _naming_fields(model: type[Model]) -> tuple[tuple[str, str], ...]:
    return tuple(
        (name, mark.section)
        for name, field in model.model_fields.items()
        for mark in field.metadata
        if isinstance(mark, EntryOf)
    )
