"""Where the command line writes for people: colour on a terminal, plain text in a pipe or a file."""

import os
import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TextIO

from gateway.json_types import Json

_STYLES: Final = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}
_CONTROLS: Final = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|[\x00-\x08\x0b-\x1f\x7f-\x9f]"
)


class Screen:
    """One output stream of the process."""

    def __init__(self, stream: TextIO, environ: Mapping[str, str] = os.environ) -> None:
        self._stream = stream
        self.is_terminal = stream.isatty()
        self.has_colour = self.is_terminal and not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"

    @property
    def width(self) -> int:
        """Columns; without a terminal there is no edge to cut at."""
        return shutil.get_terminal_size().columns if self.is_terminal else 10_000

    def line(self, text: str = "") -> None:
        self._stream.write(text if text.endswith("\n") else text + "\n")
        self._stream.flush()

    def foreign(self, text: str) -> None:
        """Write what a server sent, as `clean` leaves it."""
        self.line(self.clean(text))

    def clean(self, text: str) -> str:
        """What a server sent; for a terminal without anything that could move its cursor or name its window."""
        return _CONTROLS.sub("", text) if self.is_terminal else text

    def fact(self, label: str, text: str, *, width: int) -> None:
        """A label and what it says; further lines of that stand below the first."""
        first, *others = self.clean(text).splitlines() or [""]
        self.line(f"  {self.styled(label.ljust(width), 'cyan')}  {first}".rstrip())
        for line in others:
            self.line(f"  {' ' * width}  {line}".rstrip())

    def styled(self, text: str, style: str) -> str:
        return f"\x1b[{_STYLES[style]}m{text}\x1b[0m" if self.has_colour else text

    def cut(self, text: str, *, beside: int) -> str:
        """As much of one line as has room beside so many columns."""
        room = max(self.width - beside, 20)
        return text if len(text) <= room else text[: room - 1] + "…"

    def table(self, rows: Iterable[Sequence[str]], *, style: str = "bold") -> None:
        """Rows in columns; the first column in `style`, the last cut at the terminal's edge."""
        cells = [[_one_line(cell) for cell in row] for row in rows]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        for row in cells:
            padded = [cell.ljust(width) for cell, width in zip(row[:-1], widths, strict=False)]
            last = self.cut(row[-1], beside=sum(map(len, padded)) + 2 * len(padded))
            self.line("  ".join([self.styled(padded[0], style), *padded[1:], last]).rstrip())


def say(value: Json) -> str:
    """A value of a status in the words of a person."""
    match value:
        case None:
            return "–"
        case bool():
            return "yes" if value else "no"
        case list():
            return ", ".join(map(say, value)) or "none"
        case dict():
            return ", ".join(f"{key} {say(item)}" for key, item in value.items()) or "none"
        case _:
            return str(value)


def counted(count: int, noun: str, several: str | None = None) -> str:
    """`1 tool`, `2 tools`."""
    return f"{count} {noun if count == 1 else several or f'{noun}s'}"


def _one_line(text: str) -> str:
    return " ".join(_CONTROLS.sub("", text).split())
