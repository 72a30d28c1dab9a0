"""Finds which of many byte strings occur in a text, most often none. Pure.

Each by itself costs the same for every one of them. So where there are many, samples of them are looked for first: the
text is looked at in such large steps that no string can lie between two of them (the idea of Wu and Manber, 1994).
"""

from collections.abc import Iterable, Sequence
from typing import Final

_SAMPLE: Final = 6
"""Bytes."""
_LONG: Final = 16
"""Bytes. The shortest decides how large the steps are, so few short ones should not decide for all."""
_FEWEST: Final = 400
"""Strings times bytes of a step: below that it is faster to look for each; measured."""
_MOST_SAMPLES: Final = 100_000


class SubstringSearch:
    """Byte strings that are looked for together, of 8 bytes and more."""

    def __init__(self, needles: Iterable[bytes]) -> None:
        self.all: Final = sorted(set(needles), key=len, reverse=True)
        self._groups: Final = (
            _Group([needle for needle in self.all if len(needle) >= _LONG]),
            _Group([needle for needle in self.all if len(needle) < _LONG]),
        )

    def found(self, data: bytes) -> list[bytes]:
        """The byte strings that occur in a text, the longest first."""
        long, short = self._groups
        return long.found(data) + short.found(data)


class _Group:
    def __init__(self, needles: Sequence[bytes]) -> None:
        self._needles: Final = needles
        shortest = len(needles[-1]) if needles else _SAMPLE
        self._step: Final = max(1, min(shortest - _SAMPLE + 1, _MOST_SAMPLES // max(1, len(needles))))
        is_sampled = len(needles) * self._step >= _FEWEST
        # Of so many successive offsets in a text one is looked at, so each of them gives a sample.
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
