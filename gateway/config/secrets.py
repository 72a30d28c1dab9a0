"""Masks secrets in text that leaves the daemon: errors, progress, output, logs, problems."""

import re
from collections.abc import Iterable
from typing import Final

MASK: Final = "***"
SHORTEST_MASKED: Final = 8
"""Characters. A shorter secret would turn ordinary words into stars."""


class Redactor:
    """Replaces each occurrence of a secret. One compiled alternation, so the cost does not grow with each secret."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        longest_first = sorted({s for s in secrets if len(s) >= SHORTEST_MASKED}, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, longest_first))) if longest_first else None

    def text(self, text: str) -> str:
        return text if self._pattern is None else self._pattern.sub(MASK, text)
