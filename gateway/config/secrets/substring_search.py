"""Finds which of many byte strings occur in a text, usually none.

With many strings, samples of them are searched first, in steps so large that every string contains a sampled position
(Wu and Manber, 1994).
"""

from collections.abc import Iterable, Sequence
from typing import Final

_SAMPLE: Final = 6
"""Bytes."""
_LONG: Final = 16
"""Bytes. Shorter strings are searched separately, because the shortest string determines the step."""
_FEWEST: Final = 400
"""Number of strings times step. Below this, searching for each string is faster (measured)."""
_MOST_SAMPLES: Final = 100_000


class SubstringSearch:
    """A set of byte strings of at least 8 bytes to search together."""

    def __init__(self, needles: Iterable[bytes]) -> None:
        self.all: Final = sorted(set(needles), key=len, reverse=True)
        self._groups: Final = (
            _Group([needle for needle in self.all if len(needle) >= _LONG]),
            _Group([needle for needle in self.all if len(needle) < _LONG]),
        )

    def found(self, data: bytes) -> list[bytes]:
        """Return the strings that occur in a text, longest first."""
        long, short = self._groups
        return long.found(data) + short.found(data)


class _Group:
    def __init__(self, needles: Sequence[bytes]) -> None:
        self._needles: Final = needles
        shortest = len(needles[-1]) if needles else _SAMPLE
        self._step: Final = max(1, min(shortest - _SAMPLE + 1, _MOST_SAMPLES // max(1, len(needles))))
        is_sampled = len(needles) * self._step >= _FEWEST
        # Only every `step`-th position is checked, so every offset within a step needs a sample.
        self._samples: Final = (
            {needle[at : at + _SAMPLE] for needle in needles for at in range(self._step)} if is_sampled else None
        )

    def found(self, data: bytes) -> list[bytes]:
        if self._samples is not None and not self._may_be_in(data, self._samples):
            return []
        return [needle for needle in self._needles if needle in data]

    def _may_be_in(self, data: bytes, samples: set[bytes]) -> bool:
        for at in range(0, len(data) - _SAMPLE + 1, self._step):  # noqa: SIM110 - half the time of `any`
            if data[at : at + _SAMPLE] in samples:
                return True
        return False
