"""Finds characters that models read but people do not see, and characters that reorder a line.

Some are legitimate: emoji, Persian and Indic scripts use joiners. Characters are allowed where their script uses them.
"""

import re
import unicodedata
from typing import Final

_SUSPECTS: Final = re.compile(
    "["
    "\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f"  # controls but tab and line ends
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f"  # soft hyphen, joiners and fillers of single scripts
    "\u200b-\u200f\u202a-\u202e\u2060-\u206f"  # zero width; marks, embeddings, overrides and isolates of direction
    "\u2800\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff9-\ufffb"  # blanks, fillers, variation selectors, annotations
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"  # shorthand and music; tags, more selectors
    "]"
)
_FLAG: Final = re.compile("\U0001f3f4[\U000e0030-\U000e0039\U000e0061-\U000e007a]{3,6}\U000e007f")
"""A flag of a region (Unicode emoji: "Emoji Tag Sequence"), the only legitimate use of tags."""

_NON_JOINER, _JOINER, _LEFT_TO_RIGHT, _RIGHT_TO_LEFT, _ARABIC = "\u200c", "\u200d", "\u200e", "\u200f", "\u061c"


def invisible_characters_in(text: str) -> str | None:
    """Return the name of the first hidden character and the number of others, or None."""
    if text.isascii() and text.isprintable():
        return None
    text = _FLAG.sub("", text)
    found = [match.start() for match in _SUSPECTS.finditer(text) if not _is_at_home(text, match.start())]
    if not found:
        return None
    first = text[found[0]]
    name = unicodedata.name(first, "a control character" if ord(first) < 0xA0 else "")
    more = f" and {len(found) - 1} more" if len(found) > 1 else ""
    return f"U+{ord(first):04X} {name}".rstrip() + more


def _is_at_home(text: str, index: int) -> bool:
    """Whether the adjacent characters use this character."""
    character, before, after = text[index], text[index - 1 : index], text[index + 1 : index + 2]
    if _is_selector(character):
        return bool(before) and _has_variants(before)
    if character in {_JOINER, _NON_JOINER}:
        return _joins(before) and _joins(after)
    # Directional marks are only useful in text with right-to-left letters.
    if character in {_LEFT_TO_RIGHT, _RIGHT_TO_LEFT, _ARABIC}:
        return any(each.isalpha() and unicodedata.bidirectional(each) in {"R", "AL"} for each in text)
    return False


def _is_selector(character: str) -> bool:
    return "\ufe00" <= character <= "\ufe0f" or "\U000e0100" <= character <= "\U000e01ef"


def _has_variants(character: str) -> bool:
    """Whether a selector can follow: symbols, digits (keycaps), letters without case (ideographs, Mongolian)."""
    return unicodedata.category(character) in {"So", "Sm", "Sk", "Po", "Pd", "Nd", "Lo"}


def _joins(character: str) -> bool:
    """Whether a joiner can be adjacent: emoji and their parts, letters and signs of scripts without case."""
    return bool(character) and (
        unicodedata.category(character) in {"So", "Sk", "Lo", "Mn", "Mc"} or _is_selector(character)
    )
