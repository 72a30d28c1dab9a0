"""Masks secrets in definitions: what clients list must not hold one, even if an author put it there.

A variable is a secret where it stands in a header, and plain text in a description: as text that is passed on it is
masked like any other. A URI would lead nowhere with a mask in it, so there a secret is an error.
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
    """Mask and report the secrets in what clients see of one definition of the file. `problems` views that."""
    return [_masked(each, redactor=redactor, problems=problems) for each in primitives]


def mask_text(text: str | None, *, redactor: Redactor, problems: Problems) -> str | None:
    """Mask and report the secrets in a text of the server's own."""
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
    # The digest was of what clients no longer see.
    return replace(primitive, definition=masked, digest=b"")
