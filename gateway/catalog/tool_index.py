"""Ranks tools for a query by BM25 (Robertson and Zaragoza, 2009) over names and descriptions.

The library rank-bm25 would require numpy.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from math import log
from typing import Final

from gateway.json_types import Json, JsonObject

_K1: Final = 1.2
"""Saturation of repeated words."""
_B: Final = 0.75
"""Penalty for long descriptions."""
_NAME_WEIGHT: Final = 3
"""Weight of words in names and titles."""
_MIN_STEM: Final = 3
_UNSPACED: Final = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u3400-\u9fff"
    "\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff"
)
"""Scripts that do not separate words by spaces, and Korean, which appends particles."""
_WORD: Final = re.compile(rf"[{_UNSPACED}]+|[^\W_{_UNSPACED}]+")
_ENDINGS: Final = (("ies", "y"), *((f"{end}es", end) for end in ("x", "ch", "sh", "ss", "us")), ("s", ""))
_VOWEL: Final = re.compile("[aeiouy]")
_DOUBLED: Final = re.compile(r"(?<=([bgmnprt]))\1$")
"""Letter doubled by an ending, as in `running`."""
_FINAL_Y: Final = re.compile("(?<=[^aeiou])y$")
_HUMP: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


class ToolIndex:
    def __init__(self, definitions: Iterable[JsonObject]) -> None:
        self._counts: Final = [Counter(_words_of(each)) for each in definitions]
        self._lengths: Final = [count.total() for count in self._counts]
        self._mean: Final = sum(self._lengths) / max(1, len(self._lengths)) or 1
        self._holders: Final = Counter(word for count in self._counts for word in count)

    def ranked(self, query: str, *, limit: int) -> Sequence[int]:
        """Return the indexes of matching tools, best first. Ties keep their order."""
        terms = {term for word in words(query) for term in self._terms(word)}
        scores = ((self._score(position, terms), -position) for position in range(len(self._counts)))
        return [-position for score, position in sorted(scores, reverse=True)[:limit] if score > 0]

    def _terms(self, word: str) -> Iterable[str]:
        """Return a known word, or the known words that start with it (`calc` finds `calculator`)."""
        if len(word) == 1 and re.fullmatch(f"[{_UNSPACED}]", word):
            return [known for known in self._holders if word in known]
        if word in self._holders or len(word) < _MIN_STEM:
            return (word,)
        return [known for known in self._holders if known.startswith(word)]

    def _score(self, position: int, terms: Iterable[str]) -> float:
        count, length = self._counts[position], self._lengths[position]
        return sum(self._rarity(term) * _gain(count[term], length / self._mean) for term in terms if term in count)

    def _rarity(self, term: str) -> float:
        holders = self._holders[term]
        # The 1 keeps the result positive for words in more than half of the tools.
        return log(1 + (len(self._counts) - holders + 0.5) / (holders + 0.5))


def _gain(occurrences: int, relative_length: float) -> float:
    return occurrences * (_K1 + 1) / (occurrences + _K1 * (1 - _B + _B * relative_length))


def words(text: str) -> list[str]:
    """Return the stems of the words, splitting `snake_case` and `camelCase`.

    Text without spaces is split into pairs of characters.
    """
    # NFKC unifies characters that look alike, such as half-width forms.
    parts = _WORD.findall(unicodedata.normalize("NFKC", text))
    return [stem for part in parts for word in _HUMP.split(part) for stem in _stems(word.lower())]


def _stems(word: str) -> list[str]:
    if re.match(f"[{_UNSPACED}]", word):
        return [word[at : at + 2] for at in range(max(1, len(word) - 1))]
    if not word.endswith(("ss", "us", "is")):
        for ending, rest in _ENDINGS:
            if word.endswith(ending) and len(word) - len(ending) >= _MIN_STEM - 1:
                word = word.removesuffix(ending) + rest
                break
    for ending in ("ing", "ed"):
        stem = word.removesuffix(ending)
        if stem != word and len(stem) >= _MIN_STEM and _VOWEL.search(stem):
            word = _DOUBLED.sub("", stem)
            break
    if len(word) > _MIN_STEM + 1:
        word = word.removesuffix("e")
    return [_FINAL_Y.sub("i", word)]


def _words_of(definition: JsonObject) -> Iterator[str]:
    titles = f"{definition.get('name', '')} {definition.get('title', '')}"
    yield from words(titles) * _NAME_WEIGHT
    yield from words(_text(definition.get("description")))
    schema = definition.get("inputSchema")
    properties = schema.get("properties") if isinstance(schema, dict) else None
    for name, parameter in properties.items() if isinstance(properties, dict) else ():
        yield from words(name)
        if isinstance(parameter, dict):
            yield from words(f"{_text(parameter.get('title'))} {_text(parameter.get('description'))}")


def _text(value: Json) -> str:
    return value if isinstance(value, str) else ""
