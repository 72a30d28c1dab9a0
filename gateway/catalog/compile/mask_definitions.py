"""Masks secrets in definitions, because clients can list definitions.

A secret is masked in a description. In a name or URI it is an error, because a masked URI would not work.
"""

from collections.abc import Sequence
from typing import Final, TypeVar

from msgspec.structs import replace

from gateway.catalog.primitives import Primitive
from gateway.config.diagnostics.problems import Problems
from gateway.config.secrets.redactor import Redactor

P = TypeVar("P", bound=Primitive)

_NAMES: Final = ("name", "uri", "uriTemplate")


def mask_definitions(primitives: Sequence[P], *, redactor: Redactor, problems: Problems) -> Sequence[P]:
    """Mask and report secrets. `problems` is the view of the entry."""
    return [_masked(each, redactor=redactor, problems=problems) for each in primitives]


def mask_text(text: str | None, *, redactor: Redactor, problems: Problems) -> str | None:
    if text is None or not redactor.finds(text):
        return text
    problems.warning(_ADVICE)
    return redactor.text(text)


_ADVICE: Final = "contains a secret from elsewhere in the file, and clients can see it: it is masked; remove it"


def _masked(primitive: P, *, redactor: Redactor, problems: Problems) -> P:
    masked = redactor.json(primitive.definition)
    if masked == primitive.definition:
        return primitive
    if any(masked.get(key) != primitive.definition.get(key) for key in _NAMES):
        problems.error("its name or URI contains a secret from elsewhere in the file, and clients can see it")
    else:
        problems.warning(_ADVICE)
    # The digest is of the unmasked definition.
    return replace(primitive, definition=masked, digest=b"")
