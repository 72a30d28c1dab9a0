"""Derives from the models which places of a document hold secrets, are shown to clients, or are scripts."""

from collections.abc import Mapping
from functools import cache
from types import NoneType
from typing import Final, get_args, get_origin

from pydantic import BaseModel

from gateway.config.models.document import LISTS, Document
from gateway.config.models.field_use import Use, alternatives, use_of

ANY: Final = "*"
"""Every key that is not named beside it."""
ITSELF: Final = ""
"""Text, or a list of texts, where a mapping with the keys beside it could stand, too."""

Uses = Use | Mapping[str, "Uses"]


@cache
def section_uses(section: str) -> Uses:
    """The uses of all places of a section, as a tree of its keys.

    A key that only other kinds of definitions have is what it is there: one that is misplaced is reported, and the
    secret in it must be masked in that report.
    """
    uses = _declared(section)
    if section not in LISTS:
        return uses
    # Reversed: where kinds differ, what tools say of a key holds.
    known = {key: use for kind in reversed(LISTS) for key, use in _keys_of(step(_declared(kind), ANY)).items()}
    return {**_keys_of(uses), ANY: {**known, **_keys_of(step(uses, ANY))}}


@cache
def _declared(section: str) -> Uses:
    field = Document.model_fields[section]
    return _uses_of(field.annotation, use_of(field.metadata, default=Use.PLAIN))


def _keys_of(uses: Uses) -> Mapping[str, Uses]:
    assert not isinstance(uses, Use)  # noqa: S101 - of a model
    return uses


def step(uses: Uses, key: str | int) -> Uses:
    """The uses below one key, or of the items of a list."""
    if isinstance(uses, Use) or isinstance(key, int):
        return uses
    return uses[key] if key in uses else uses.get(ANY, Use.PLAIN)


def text_use(uses: Uses) -> Use:
    """The use of a text that stands at a place itself."""
    if isinstance(uses, Use):
        return uses
    use = uses.get(ITSELF, Use.PLAIN)
    return use if isinstance(use, Use) else Use.PLAIN


def _uses_of(annotation: object, use: Use) -> Uses:
    """The uses of what an annotation allows, where `use` holds unless it says otherwise."""
    uses: dict[str, Uses] = {ITSELF: use, ANY: use}
    for kind, metadata in alternatives(annotation):
        if kind is not NoneType:
            below = _below(kind, use_of(metadata, default=use))
            uses |= {ITSELF: below} if isinstance(below, Use) else below
    return use if all(each is use for each in uses.values()) else uses


def _below(kind: object, use: Use) -> Uses:
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in {list, tuple}:
        return _uses_of(arguments[0], use)
    if origin is dict:
        return {ANY: _uses_of(arguments[1], use)}
    return _uses_in(kind, use) if isinstance(kind, type) and issubclass(kind, BaseModel) else use


@cache
def _uses_in(model: type[BaseModel], use: Use) -> Uses:
    """The uses below the keys of a model, many of which stand in several places."""
    return {
        field.alias or name: _uses_of(field.annotation, use_of(field.metadata, default=use))
        for name, field in model.model_fields.items()
    }
