"""Keeps the last lines of what a program writes. Bounded by lines and by the length of each."""

from collections import deque
from typing import Final

MAX_LINES: Final = 200
MAX_LINE_BYTES: Final = 2000
"""Of a longer line the beginning is kept."""


class LineTail:
    """The last lines, which outlive the process that wrote them."""

    def __init__(self) -> None:
        self._lines: Final[deque[bytes]] = deque(maxlen=MAX_LINES)
        self._rest = b""
        """The line that has not ended."""

    def feed(self, chunk: bytes) -> None:
        *ended, rest = chunk[-MAX_LINES * MAX_LINE_BYTES :].split(b"\n")
        for line in ended:
            self._lines.append((self._rest + line)[:MAX_LINE_BYTES])
            self._rest = b""
        self._rest = (self._rest + rest)[:MAX_LINE_BYTES]

    @property
    def text(self) -> str:
        """The lines, the newest last."""
        lines = [*self._lines, *([self._rest] if self._rest else [])]
        return b"\n".join(lines).decode(errors="replace")
