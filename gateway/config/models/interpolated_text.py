"""Text that remembers which of its parts were interpolated.

`${env:NAME}` and `${file:/path}` are replaced before templates are compiled. A secret that contains `{{` must not
become a template, so template compilers read `parts_of` the text.
"""

from typing import Final, Self

import msgspec

MASK: Final = "***"


class Interpolation(msgspec.Struct, frozen=True):
    """The value of one `${…}`, which is always literal text."""

    text: str
    secret: bool


Part = str | Interpolation


class InterpolatedText(str):
    """Text with at least one `${…}`. The `str` itself contains the inserted values."""

    __slots__ = ("parts",)

    parts: tuple[Part, ...]

    def __new__(cls, parts: tuple[Part, ...]) -> Self:
        text = super().__new__(cls, "".join(part.text if isinstance(part, Interpolation) else part for part in parts))
        text.parts = parts
        return text

    @property
    def is_whole(self) -> bool:
        """Whether the text is a single `${…}`. The value is then converted to the type of the field."""
        return len(self.parts) == 1 and isinstance(self.parts[0], Interpolation)


def shown(text: str) -> str:
    """Return the text with secrets masked, for error messages."""
    return "".join(
        (MASK if part.secret else part.text) if isinstance(part, Interpolation) else part for part in parts_of(text)
    )


def parts_of(text: str) -> tuple[Part, ...]:
    """Split a text into template source (`str`) and inserted values (`Interpolation`)."""
    return text.parts if isinstance(text, InterpolatedText) else (text,)
