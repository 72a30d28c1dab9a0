"""Text of the file that knows which of its parts were interpolated. Values only: no I/O.

Why: `${env:NAME}` and `${file:/path}` are filled in before templates are compiled, and what they bring is literal. A
secret that happens to hold `{{` must not become a template. So an interpolated string knows its parts, and what
compiles it asks for `parts_of`.
"""

from typing import Final, Self

import msgspec

MASK: Final = "***"


class Interpolation(msgspec.Struct, frozen=True):
    """The value of one `${…}`. Literal text: never a template, a URI template or YAML."""

    text: str
    secret: bool


Part = str | Interpolation


class InterpolatedText(str):
    """A scalar with at least one `${…}` in it; as a `str` it is the text with everything filled in."""

    __slots__ = ("parts",)

    parts: tuple[Part, ...]

    def __new__(cls, parts: tuple[Part, ...]) -> Self:
        text = super().__new__(cls, "".join(part.text if isinstance(part, Interpolation) else part for part in parts))
        text.parts = parts
        return text

    @property
    def is_whole(self) -> bool:
        """Whether the value is one interpolation and nothing else; it then takes its field's type."""
        return len(self.parts) == 1 and isinstance(self.parts[0], Interpolation)


def shown(text: str) -> str:
    """The text as a message may quote it: what came in as a secret is covered, however short it is."""
    return "".join(
        (MASK if part.secret else part.text) if isinstance(part, Interpolation) else part for part in parts_of(text)
    )


def parts_of(text: str) -> tuple[Part, ...]:
    """The parts of `text`: template source as `str`, interpolated values as `Interpolation`."""
    return text.parts if isinstance(text, InterpolatedText) else (text,)
