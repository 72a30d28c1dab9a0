"""Determines from the models which values of a document are secret, visible to clients, or scripts."""

from collections.abc import Mapping
from functools import cache
from types import NoneType
from typing import Final, get_args, get_origin

from pydantic import BaseModel

from gateway.config.models.document import LISTS, Document
from gateway.config.models.field_use import Use, alternatives, use_of

ANY: Final = "*"
"""Stands for all other keys."""
ITSELF: Final = ""
"""The value itself, if it is text or a list instead of a mapping."""

Uses = Use | Mapping[str, "Uses"]


@cache
def section_uses(section: str) -> Uses:
    """Return the uses of all values in a section, as a tree of keys.

    A key in the wrong kind of definition keeps the use of its own kind, so that errors mask its secrets.
    """
    uses = _declared(section)
    if section not in LISTS:
        return uses
    # Reversed, so that tools win if kinds differ.
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
    """Return the uses below a key or index."""
    if isinstance(uses, Use) or isinstance(key, int):
        return uses
    return uses[key] if key in uses else uses.get(ANY, Use.PLAIN)


def text_use(uses: Uses) -> Use:
    """Return the use of text at this position."""
    if isinstance(uses, Use):
        return uses
    use = uses.get(ITSELF, Use.PLAIN)
    return use if isinstance(use, Use) else Use.PLAIN


def _uses_of(annotation: object, use: Use) -> Uses:
    """Return the uses of values that an annotation allows. `use` is the default."""
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
    """Cached, because many models occur several times."""
    return {
        field.alias or name: _uses_of(field.annotation, use_of(field.metadata, default=use))
        for name, field in model.model_fields.items()
    }
