"""Finds confusable names (Unicode TR39): mixed scripts in one name, and names that look alike.

An added `read_fi1e` next to `read_file`, or a Cyrillic `a`, could receive calls that are meant for another tool.
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator
from typing import Final

_DOUBLES: Final = {
    "a": "\u0430\u03b1\u0251",
    "b": "\u044c",
    "c": "\u0441\u03f2",
    "d": "\u0501",
    "e": "\u0435\u0454",
    "g": "\u0261",
    "h": "\u04bb\u0570",
    "i": "\u0456\u03b9\u0131",
    "j": "\u0458\u03f3",
    "k": "\u043a\u03ba",
    "l": "1|\u04cf",
    "m": "\u043c",
    "n": "\u0578\u057c",
    "o": "0\u043e\u03bf\u0585",
    "p": "\u0440\u03c1",
    "q": "\u051b\u0563",
    "s": "\u0455",
    "t": "\u0442\u03c4",
    "u": "\u057d\u03c5",
    "v": "\u03bd\u0475",
    "w": "\u051d\u0461",
    "x": "\u0445\u03c7",
    "y": "\u0443\u03b3",
}
"""Lower-case Latin letters → digits and letters of Cyrillic, Greek and Armenian that look like them (Unicode TR39)."""
_ALIKE: Final[dict[int, str | None]] = {
    **{ord(double): letter for letter, doubles in _DOUBLES.items() for double in doubles},
    **dict.fromkeys(map(ord, "-_. ")),
}
"""Replacements of characters in a skeleton. Separators are removed."""
_OVERLAP: Final = frozenset({"LATIN", "CYRILLIC", "GREEK", "ARMENIAN", "CHEROKEE", "COPTIC", "LISU"})
"""Scripts with similar letters, by the first word of the letters' names."""


def mixed_scripts(name: str) -> str | None:
    """Return the first letter from another, similar script than the start of its word, or None."""
    if name.isascii():
        return None
    # Words are checked separately, because a name can have words in several scripts.
    for word in re.findall(r"\w+", name):
        scripts = [(letter, _script(letter)) for letter in word]
        known = [(letter, script) for letter, script in scripts if script in _OVERLAP]
        for letter, script in known:
            if script != known[0][1]:
                return f"U+{ord(letter):04X} {unicodedata.name(letter)}"
    return None


def confusable_names(names: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield each name that looks like an earlier name, and the earlier name."""
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
