"""The use of a field's text, declared on the field: `env: Annotated[dict[str, str], Use.SECRET]`.

Interpolation, masking and the lints derive what they must know of a key from this metadata, so that a new key, or a new
backend, is declared in one place. A field without it is `PLAIN`, or has the use of the mapping that it stands in.
"""

import types
from collections.abc import Iterable, Iterator
from enum import Enum, auto
from typing import Annotated, Any, Final, Union, get_args, get_origin


class Use(Enum):
    """The use of the text at one place of the configuration."""

    PLAIN = auto()
    """Neither secret nor shown."""
    SECRET = auto()
    """May hold secrets: what is interpolated here is masked everywhere."""
    SCRIPT = auto()
    """A program's own text, in which `${…}` is not ours."""
    SHOWN = auto()
    """Clients see it: a secret from a file is refused here."""
    NAME = auto()
    """Shown; something is called by it."""
    DESCRIPTION = auto()
    """Shown; models read it before they call anything."""
    BODY = auto()
    """Shown; what is asked for: a prompt's messages, a fixed answer, a question."""


SHOWN: Final = frozenset({Use.SHOWN, Use.NAME, Use.DESCRIPTION, Use.BODY})
"""The uses that clients see."""


def alternatives(annotation: object, metadata: tuple[object, ...] = ()) -> Iterator[tuple[Any, tuple[object, ...]]]:
    """Yield the types that an annotation allows, each with its metadata, the innermost first."""
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
    """The use that a field's metadata declares."""
    return next((each for each in metadata if isinstance(each, Use)), default)
