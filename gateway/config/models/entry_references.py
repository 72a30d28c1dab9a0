"""Marks keys that refer to an entry of another section, such as `connection`, and finds these references.

A change of the entry compiles its definitions again and changes their digests in the lock file. An error in the entry
is not repeated for each definition.
"""

from collections.abc import Iterator
from functools import cache
from typing import TypeVar, cast, get_args

import msgspec

from gateway.config.models.base import Model

M = TypeVar("M", bound=Model)


class EntryOf(msgspec.Struct, frozen=True):
    """Marks a field that names an entry of `section`."""

    section: str


def entries_named_by(config: Model) -> Iterator[tuple[str, str]]:
    """Yield the section and name of each entry that a definition refers to, at any depth."""
    for model in models_in(config, _naming_models(type(config))):
        for field, section in _naming_fields(type(model)):
            if (name := getattr(model, field)) is not None:
                yield section, name


def models_in(value: object, kind: type[M] | tuple[type[M], ...]) -> Iterator[M]:
    """Yield the models of a class in a value, including the value itself."""
    if isinstance(value, dict):
        for member in value.values():
            yield from models_in(member, kind)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from models_in(item, kind)
    elif isinstance(value, Model):
        is_wanted, fields = _way_to(kind, type(value))
        if is_wanted:
            yield cast("M", value)
        for name in fields:
            if member := getattr(value, name):  # most fields are unset
                yield from models_in(member, kind)


@cache
def _way_to(kind: type[Model] | tuple[type[Model], ...], of: type[Model]) -> tuple[bool, tuple[str, ...]]:
    """Whether `of` is a subclass of `kind`, and which of its fields can contain such models at any depth.

    Cached, because `issubclass` is slow for pydantic's classes.
    """
    return issubclass(of, kind), tuple(
        name
        for name, field in of.model_fields.items()
        if any(issubclass(each, kind) for named in _models_named(field.annotation) for each in _models_below(named))
    )


@cache
def _naming_models(model: type[Model]) -> tuple[type[Model], ...]:
    """Return the models of a definition that refer to entries."""
    return tuple(each for each in _models_below(model) if _naming_fields(each))


@cache
def _models_below(model: type[Model]) -> frozenset[type[Model]]:
    """Return a model and all models in its fields, at any depth."""
    found, waiting = {model}, [model]
    while waiting:
        fields = waiting.pop().model_fields.values()
        admitted = {each for field in fields for each in _models_named(field.annotation)} - found
        found |= admitted
        waiting += admitted
    return frozenset(found)


def _models_named(annotation: object) -> Iterator[type[Model]]:
    if isinstance(annotation, type) and issubclass(annotation, Model):
        yield annotation
    for argument in get_args(annotation):
        yield from _models_named(argument)


@cache
def _naming_fields(model: type[Model]) -> tuple[tuple[str, str], ...]:
    """Return the fields that refer to entries, each with the section."""
    return tuple(
        (name, mark.section)
        for name, field in model.model_fields.items()
        for mark in field.metadata
        if isinstance(mark, EntryOf)
    )
