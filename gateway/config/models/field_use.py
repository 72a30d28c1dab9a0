"""The use of a field's text, declared on the field: `env: Annotated[dict[str, str], Use.SECRET]`.

Interpolation, masking and lints read it. A field without a use is `PLAIN`, or inherits the use of its mapping.
"""

import types
from collections.abc import Iterable, Iterator
from enum import Enum, auto
from typing import Annotated, Any, Final, Union, get_args, get_origin


class Use(Enum):
    PLAIN = auto()
    """Not secret and not shown to clients."""
    SECRET = auto()
    """Can contain secrets. Interpolated values are masked everywhere."""
    SCRIPT = auto()
    """Program text, in which `${…}` is not interpolated."""
    SHOWN = auto()
    """Shown to clients. Secrets from files are rejected."""
    NAME = auto()
    """Shown, and used as a name or identifier."""
    DESCRIPTION = auto()
    """Shown. Models read it before they call anything."""
    BODY = auto()
    """Shown on request: the messages of a prompt, a fixed result, a question."""


SHOWN: Final = frozenset({Use.SHOWN, Use.NAME, Use.DESCRIPTION, Use.BODY})
"""Uses that clients can see."""


def alternatives(annotation: object, metadata: tuple[object, ...] = ()) -> Iterator[tuple[Any, tuple[object, ...]]]:
    """Yield each type of an annotation with its metadata, innermost first."""
    origin = get_origin(annotation)
    if origin is Annotated:
        inner, *own = get_args(annotation)
        yield from alternatives(inner, (*own, *metadata))
    elif origin in {Union, types.UnionType}:
        for each in get_args(annotation):
            yield from alternatives(each, metadata)
    else:
        yield annotation, metadata


def use_of(metadata: Iterable[object], *, default: Use) -> Use:
    return next((each for each in metadata if isinstance(each, Use)), default)
