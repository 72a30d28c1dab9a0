"""Finds text that deceives models or people: prompt injection, confusable names, and invisible characters.

Models read descriptions before any call. Published attacks ("tool poisoning") use descriptions to override other
instructions, to hide something from the user, to imitate system messages with tags, or to hide text in comments.
A tool named `read_fi1e`, or `read_file` with a Cyrillic `a`, can receive calls meant for `read_file`.
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator
from typing import Final

_ORDERS: Final = (
    (
        re.compile(
            r"\b(?:ignore|disregard|forget|override)\s+(?:(?:all|any|the|your|of|these|those)\s+)*"
            r"(?:previous|prior|above|earlier|preceding|foregoing)\s+"
            r"(?:instruction|prompt|rule|message|direction|guideline|command|context)s?\b",
            re.IGNORECASE,
        ),
        "tells a model to ignore its instructions",
    ),
    (
        re.compile(
            r"\b(?:do\s+not|don[’']t|never|without)\s+(?:(?:tell|inform|notify|alert)(?:ing)?\s+(?:the\s+)?user\b"
            r"|(?:mention|reveal|disclose)(?:ing)?\s+(?:this|that|it|these)\s+to\s+(?:the\s+)?user\b)",
            re.IGNORECASE,
        ),
        "tells a model to hide something from its user",
    ),
)
_VOICES: Final = (
    (
        re.compile(
            r"</?(?:important|system)>|</(?:instructions?|secret|hidden|admin|assistant)>"
            r"|<\|(?:im_start|im_end|system|user|assistant|endoftext)\|>|\[/?INST\]|<</?SYS>>",
            re.IGNORECASE,
        ),
        "imitates another speaker",
    ),
    (re.compile("<!--"), "is not visible in rendered text, but models read it"),
)


def instructions_in(text: str) -> str | None:
    """Return the first instruction in `text` that manipulates models, with the reason, or None."""
    return _first(text, _ORDERS)


def prompt_injection_in(description: str) -> str | None:
    """Like `instructions_in`, but also report tags and comments, which descriptions do not need."""
    return _first(description, (*_ORDERS, *_VOICES))


def _first(text: str, table: tuple[tuple[re.Pattern[str], str], ...]) -> str | None:
    for pattern, why in table:
        if (match := pattern.search(text)) is not None:
            return f"`{' '.join(match[0].split())}` {why}"
    return None


_ALIKE: Final[dict[int, str | None]] = {
    ord("0"): "o",
    ord("1"): "l",
    ord("|"): "l",
    **dict.fromkeys(map(ord, "-_. ")),
}
"""Replacements of characters in a skeleton. Separators map to None, which removes them.

Tools have ASCII names. In other names, `mixed_scripts` finds letters of other scripts.
"""
_OVERLAP: Final = frozenset({"LATIN", "CYRILLIC", "GREEK", "ARMENIAN", "CHEROKEE", "COPTIC", "LISU"})
"""Scripts with letters that look alike. The Unicode name of a letter starts with its script."""


def mixed_scripts(name: str) -> str | None:
    """Return the first letter that is in a different script than earlier letters of the same word, or None.

    Only scripts with similar letters are compared. The result contains the letter's code point and name.
    """
    if name.isascii():
        return None
    # Check each word separately, because a name can contain words in different scripts.
    for word in re.findall(r"\w+", name):
        scripts = [(letter, _script(letter)) for letter in word]
        known = [(letter, script) for letter, script in scripts if script in _OVERLAP]
        for letter, script in known:
            if script != known[0][1]:
                return f"U+{ord(letter):04X} {unicodedata.name(letter)}"
    return None


def confusable_names(names: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield each name that looks like an earlier name, with the earlier name."""
    first: dict[str, str] = {}
    for name in names:
        earlier = first.setdefault(_skeleton(name), name)
        if earlier != name:
            yield name, earlier


def _script(letter: str) -> str:
    return unicodedata.name(letter, "").partition(" ")[0] if letter.isalpha() else ""


def _skeleton(name: str) -> str:
    """Return the same text for names that look alike, ignoring case and separators."""
    return unicodedata.normalize("NFKC", name).casefold().translate(_ALIKE)


_SUSPECTS: Final = re.compile(
    "["
    "\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f"  # control characters, except tab and line breaks
    "\u00ad\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f"  # soft hyphen, joiners, fillers of single scripts
    "\u200b\u202a-\u202e\u2060-\u206f"  # zero-width and directional characters
    "\u2800\u3164\ufe00-\ufe0d\ufeff\uffa0\ufff9-\ufffb"  # blanks, fillers, variation selectors, annotations
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e00ff\U000e01f0-\U000e0fff"  # shorthand, music, tags
    "]"
    # Joiners and directional marks belong next to letters of other scripts and emoji, and never next to each other.
    r"|(?<=[ -~])[\u061c\u200c-\u200f](?=[ -~])|(?<=[\u061c\u200c-\u200f])[\u061c\u200c-\u200f]"
    # Emoji selectors can follow the digits of keycaps, and ideographic selectors follow ideographs.
    r"|(?<=[A-Za-z ])[\ufe0e\ufe0f]|(?<![\u3400-\u9fff\U00020000-\U0003ffff])[\U000e0100-\U000e01ef]"
)
_FLAG: Final = re.compile("\U0001f3f4[\U000e0030-\U000e0039\U000e0061-\U000e007a]{3,6}\U000e007f")
"""Flag of a region (Unicode "Emoji Tag Sequence"), the only legitimate use of Unicode tag characters."""


def invisible_characters_in(text: str) -> str | None:
    """Return the name of the first hidden character and the number of further hidden characters, or None."""
    if text.isascii() and text.isprintable():
        return None
    text = _FLAG.sub("", text)
    found = _SUSPECTS.findall(text)
    if not found:
        return None
    first = found[0]
    name = unicodedata.name(first, "a control character" if ord(first) < 0xA0 else "")
    more = f" and {len(found) - 1} more" if len(found) > 1 else ""
    return f"U+{ord(first):04X} {name}".rstrip() + more
