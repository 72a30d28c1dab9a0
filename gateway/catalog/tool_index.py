"""Ranks tools by how well they fit a few words: BM25 (Robertson and Zaragoza, 2009) over names and descriptions. Pure.

Thirty lines rather than a library: the one that fits, rank-bm25, wants numpy.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from math import log
from typing import Final

from gateway.json_types import Json, JsonObject

_K1: Final = 1.2
"""How soon another occurrence of a word in one tool counts for little."""
_B: Final = 0.75
"""How much a tool is held back for a long description."""
_NAME_WEIGHT: Final = 3
"""How many times a word of a name or a title counts."""
_MIN_STEM: Final = 3
_WORD: Final = re.compile(r"[^\W_]+")
_HUMP: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


class ToolIndex:
    """The words of some tools' definitions."""

    def __init__(self, definitions: Iterable[JsonObject]) -> None:
        self._counts: Final = [Counter(_words_of(each)) for each in definitions]
        self._lengths: Final = [count.total() for count in self._counts]
        self._mean: Final = sum(self._lengths) / max(1, len(self._lengths)) or 1
        self._holders: Final = Counter(word for count in self._counts for word in count)

    def ranked(self, query: str, *, limit: int) -> Sequence[int]:
        """The positions of the tools that have a word of the query, the best first; equals stay in their order."""
        terms = {term for word in words(query) for term in self._terms(word)}
        scores = ((self._score(position, terms), -position) for position in range(len(self._counts)))
        return [-position for score, position in sorted(scores, reverse=True)[:limit] if score > 0]

    def _terms(self, word: str) -> Iterable[str]:
        """The word itself, or else the words that begin with it: `calc` finds `calculator`."""
        if word in self._holders or len(word) < _MIN_STEM:
            return (word,)
        return [known for known in self._holders if known.startswith(word)]

    def _score(self, position: int, terms: Iterable[str]) -> float:
        count, length = self._counts[position], self._lengths[position]
        return sum(self._rarity(term) * _gain(count[term], length / self._mean) for term in terms if term in count)

    def _rarity(self, term: str) -> float:
        holders = self._holders[term]
        # The 1 keeps it above zero: a word that more than half of the tools have would otherwise count against them.
        return log(1 + (len(self._counts) - holders + 0.5) / (holders + 0.5))


def _gain(occurrences: int, relative_length: float) -> float:
    return occurrences * (_K1 + 1) / (occurrences + _K1 * (1 - _B + _B * relative_length))


def words(text: str) -> list[str]:
    """The words of a text in lower case, those of `snake_case` and `camelCase` apart, without the `s` of a plural."""
    return [_singular(word.lower()) for part in _WORD.findall(text) for word in _HUMP.split(part)]


def _singular(word: str) -> str:
    return word[:-1] if len(word) > _MIN_STEM and word.endswith("s") and not word.endswith("ss") else word


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
