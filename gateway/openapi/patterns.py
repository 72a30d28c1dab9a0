"""Patterns as clients compile them: regular expressions of ECMA-262 with the flag `u`.

Documents hold patterns of other languages, too. A client that validates with one of them refuses the whole tool.
"""

import re
from functools import lru_cache
from typing import Final

from gateway.language.schemas.rules import is_pattern_usable

# ECMA-262 §22.2.1 "Patterns", with the parameter UnicodeMode.
_ESCAPE: Final = r"\\(?:[fnrtv^$\\.*+?()\[\]{}|/]|0(?!\d)|c[A-Za-z]|x[\da-fA-F]{2}|u[\da-fA-F]{4}|u\{[\da-fA-F]+\})"
_PROPERTY: Final = (
    r"[CLMNPSZ][a-z]?|(?:Script|sc|Script_Extensions|scx|General_Category|gc)=\w+"
    r"|Alphabetic|Lowercase|Uppercase|White_Space|ASCII|Any|Emoji|ID_Start|ID_Continue"
)
_SET: Final = rf"\\(?:[dDwWsS]|[pP]\{{(?:{_PROPERTY})\}})"
_IN_CLASS: Final = rf"(?:{_ESCAPE}|\\[-b]|[^\]\\])"
_CLASS: Final = rf"\[\^?(?:{_SET}(?!-[^\]])|{_IN_CLASS}(?:-{_IN_CLASS}|(?!-[^\]])))*\]"
_ATOM: Final = rf"(?:{_ESCAPE}|{_SET}|{_CLASS}|\\[1-9]\d*|\\k<\w+>|[^\\^$*+?()\[\]{{}}|])"
_QUANTIFIER: Final = r"(?:(?:[*+?]|\{\d+(?:,\d*)?\})\??)?"
_GROUP: Final = r"\((?:\?(?:[:=!]|<[=!]|<[A-Za-z_$][\w$]*>))?"
_ECMA: Final = re.compile(rf"(?:(?:{_ATOM}|\)){_QUANTIFIER}|{_GROUP}|[\^$|]|\\[bB])*")
_SYNTAX: Final = frozenset("^$\\.*+?()[]{}|/")
_IN_SETS: Final = frozenset("-&~")
"""Characters that have a meaning within brackets."""


@lru_cache(maxsize=4096)
def ecma_pattern(written: str) -> str | None:
    """The pattern as ECMA-262 has it; None where it has none that means the same."""
    pattern = written.replace("(?P<", "(?<").replace(r"\A", "^").replace(r"\Z", "$").replace(r"\z", "$")
    if not _ECMA.fullmatch(pattern):
        pattern = re.sub(r"(?s)\\(.)", _plain, pattern)
    return pattern if _ECMA.fullmatch(pattern) and is_pattern_usable(pattern) else None


def _plain(escape: re.Match[str]) -> str:
    """The character that an escape stands for, unless it has another meaning with the escape, or without it."""
    character = escape[1]
    if (character.isascii() and character.isalnum()) or character in _SYNTAX:
        return escape[0]
    return f"\\x{ord(character):02x}" if character in _IN_SETS else character
