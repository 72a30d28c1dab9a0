"""Output for people: coloured on a terminal, plain text in a pipe or a file. Keeps foreign output out of it."""

import os
import re
import shutil
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from typing import Final, TextIO

from gateway.control_characters import strip_control_characters, visible
from gateway.json_types import Json, JsonObject

_ERASE: Final = "\r\x1b[2K"
"""ECMA-48 8.3.41: the line under the cursor."""
_PATIENCE: Final = 1.0
"""Seconds that nobody minds."""
SIGN_STYLES: Final = {"+": "green", "~": "yellow", "-": "red", "@": "cyan"}
"""The styles of lines of a difference, by the signs that they begin with."""
_OWN_STYLE: Final = re.compile(r"(\x1b\[(?:0|1|2|31|32|33|36)m)")
"""A style of this program, in text that may have come from elsewhere: nothing but a colour."""
_STYLES: Final = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}


class Console:
    """Writes lines, styles and tables to one output stream of the process."""

    def __init__(self, stream: TextIO, environ: Mapping[str, str] = os.environ) -> None:
        self._stream = stream
        self.is_terminal = stream.isatty()
        self.has_colour = self.is_terminal and not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"
        self.is_redrawable = self.is_terminal and environ.get("TERM", "dumb") != "dumb" and not environ.get("CI")
        """Whether a person sees a line change: in the log of a build each change would be a line of its own."""
        self._is_drawn = False
        # Reentrant, because `line` erases under it; a lock, because `waiting` draws in a thread.
        self._lock = threading.RLock()

    @property
    def width(self) -> int:
        """Columns of the terminal; practically unlimited without one."""
        return shutil.get_terminal_size().columns if self.is_terminal else 10_000

    def line(self, text: str = "") -> None:
        """Write lines. A terminal gets nothing that could move its cursor or show text in another order.

        Names and texts of other people's servers and documents are part of lines of every command.
        """
        pieces = _OWN_STYLE.split(text) if self.has_colour else [text]
        text = "".join(each if index % 2 else self.clean(each) for index, each in enumerate(pieces))
        with self._lock:
            self.erase()
            self._stream.write(text if text.endswith("\n") else text + "\n")
            self._stream.flush()

    def prompt(self, text: str) -> None:
        """Write text that the user types an answer after."""
        with self._lock:
            self.erase()
            self._stream.write(self.clean(text))
            self._stream.flush()

    def redraw(self, text: str) -> None:
        """Show one line in place of the last that was drawn; other lines go above it."""
        with self._lock:
            self._stream.write(_ERASE + self.styled(self.cut(_one_line(text), beside=1), "dim"))
            self._stream.flush()
            self._is_drawn = True

    def erase(self) -> None:
        """Take away the line that was drawn."""
        with self._lock:
            if self._is_drawn:
                self._stream.write(_ERASE)
                self._stream.flush()
            self._is_drawn = False

    def foreign(self, text: str) -> None:
        """Write text that a server sent, cleaned for the terminal."""
        self.line(self.clean(text))

    def clean(self, text: str) -> str:
        """Text that a server sent; for a terminal without control sequences, which could move its cursor."""
        return _printable(text) if self.is_terminal else text

    def fact(self, label: str, text: str, *, width: int) -> None:
        """Write a label and its text, whose further lines are aligned below the first."""
        first, *others = self.clean(text).splitlines() or [""]
        self.line(f"  {self.styled(label.ljust(width), 'cyan')}  {first}".rstrip())
        for line in others:
            self.line(f"  {' ' * width}  {line}".rstrip())

    def styled(self, text: str, style: str) -> str:
        return f"\x1b[{_STYLES[style]}m{text}\x1b[0m" if self.has_colour else text

    def changed(self, line: str) -> str:
        """A line of a difference, cleaned, in the style of its sign."""
        text, style = self.clean(line), SIGN_STYLES.get(line[:1])
        return self.styled(text, style) if style else text

    def cut(self, text: str, *, beside: int) -> str:
        """One line, cut to the width that is left beside so many columns."""
        room = max(self.width - beside, 20)
        return text if len(text) <= room else text[: room - 1] + "…"

    def table(self, rows: Iterable[Sequence[str]], *, style: str = "bold") -> None:
        """Write rows in columns: the first column in `style`, the last cut at the terminal's edge."""
        cells = [[_one_line(cell) for cell in row] for row in rows]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        for row in cells:
            padded = [cell.ljust(width) for cell, width in zip(row[:-1], widths, strict=False)]
            last = self.cut(row[-1], beside=sum(map(len, padded)) + 2 * len(padded))
            self.line("  ".join([self.styled(padded[0], style), *padded[1:], last]).rstrip())


@contextmanager
def protect_stdout() -> Iterator[None]:
    """Redirect writes to `sys.stdout` and descriptor 1 to standard error, for as long as the context lasts.

    Standard output is for a command's result, and plugins, which are loaded and called meanwhile, may print.
    """
    # What was written before belongs to standard output.
    sys.stdout.flush()
    kept = os.dup(1)
    # The descriptor as well as the object: C code and children write to the descriptor.
    os.dup2(2, 1)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)


@contextmanager
def waiting(console: Console, text: str) -> Iterator[Callable[[str], None]]:
    """Show what is waited for, and for how long, once that has taken a second, in a line of a terminal that is redrawn.

    Yields what changes the text. A thread draws, for the event loop is busy while a file is loaded.
    """
    if not console.is_redrawable:
        yield lambda _: None
        return
    told = [text]
    is_over = threading.Event()
    thread = threading.Thread(target=_draw, args=(console, told, is_over), name="waiting line", daemon=True)
    thread.start()
    try:
        yield lambda text: told.__setitem__(0, text)
    finally:
        is_over.set()
        # Joined before the line is erased: else it might be drawn once more.
        thread.join()
        console.erase()


def _draw(console: Console, told: list[str], is_over: threading.Event) -> None:
    began = time.monotonic()
    while not is_over.wait(_PATIENCE):
        console.redraw(f"{told[0]} … {time.monotonic() - began:.0f} s")


def say(value: Json) -> str:
    """A JSON value as a person would write it."""
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
    """A number with its noun: `1 tool`, `2 tools`."""
    return f"{count} {noun if count == 1 else several or f'{noun}s'}"


def left_out_lines(
    left_out: Iterable[JsonObject], *, lists_all: bool, hint: str, where: str = " here"
) -> Iterator[str]:
    """Describe definitions that are not served: operations of OpenAPI documents by their number, unless `lists_all`.

    `hint` says how to list them.
    """
    operations: Counter[str] = Counter()
    for each in left_out:
        if each["kind"] == "openapi" and not lists_all:
            operations[each["name"].partition(":")[0]] += 1
        else:
            yield f"{each['kind']}.{each['name']} is not available{where}: {each['reason']}"
    for name, count in operations.items():
        yield f"openapi.{name}: {counted(count, 'operation')} not available. {hint}"


def _one_line(text: str) -> str:
    return " ".join(_printable(text).split())


def _printable(text: str) -> str:
    """Without terminal escapes; characters that hide or direct text are shown as escapes."""
    return visible(strip_control_characters(text), has_lines=True)
