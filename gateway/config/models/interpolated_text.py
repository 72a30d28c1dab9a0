"""Text that knows which of its parts were interpolated. This module only handles values and does no I/O.

`${env:NAME}` and `${file:/path}` are replaced before templates are compiled, and the inserted text is literal. A secret
that contains `{{` must not become a template. So an interpolated string remembers its parts, and the code that compiles
it calls `parts_of`.
"""

from typing import Final, Self

import msgspec

MASK: Final = "***"


class Interpolation(msgspec.Struct, frozen=True):
    """The value of one `${…}`. It is literal text, never a template, a URI template or YAML."""

    text: str
    secret: bool


Part = str | Interpolation


class InterpolatedText(str):
    """A scalar with at least one `${…}`. As a `str`, it is the text with all values inserted."""

    __slots__ = ("parts",)

    parts: tuple[Part, ...]

    def __new__(cls, parts: tuple[Part, ...]) -> Self:
        text = super().__new__(cls, "".join(part.text if isinstance(part, Interpolation) else part for part in parts))
        text.parts = parts
        return text

    @property
    def is_whole(self) -> bool:
        """Whether the value is one interpolation and nothing else. It is then converted to the type of its field."""
        return len(self.parts) == 1 and isinstance(self.parts[0], Interpolation)


def shown(text: str) -> str:
    """The text for error messages. Secrets are masked, whatever their length."""
    return "".join(
        (MASK if part.secret else part.text) if isinstance(part, Interpolation) else part for part in parts_of(text)
    )


def parts_of(text: str) -> tuple[Part, ...]:
    """Return the parts of `text`: template source as `str`, interpolated values as `Interpolation`."""
    return text.parts if isinstance(text, InterpolatedText) else (text,)
