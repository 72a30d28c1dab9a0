"""Writes coloured text to a terminal or plain text to a pipe, and removes control sequences from untrusted text."""

import os
import re
import shutil
import sys
import threading
import webbrowser
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from typing import Final, TextIO

from gateway.control_characters import strip_control_characters, visible
from gateway.json_types import Json, JsonObject

SIGN_STYLES: Final = {"+": "green", "~": "yellow", "-": "red", "@": "cyan"}
"""The style of a line of a diff, by its first character."""
_OWN_STYLE: Final = re.compile(r"(\x1b\[(?:0|1|2|31|32|33|36)m)")
"""Matches the styles that this program uses. All other escape sequences are removed from the text."""
_STYLES: Final = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}
_WITH_WINDOWS: Final = ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY")
"""Environment variables that indicate a graphical browser. A text browser must not be opened in the terminal."""


def has_browser() -> bool:
    return sys.platform == "darwin" or any(os.environ.get(name) for name in _WITH_WINDOWS)


def open_in_browser(url: str) -> None:
    """Open a URL if there is a graphical browser, without waiting for the browser."""
    if has_browser():
        # Use a daemon thread, because some browser commands return only after the user has closed the window.
        threading.Thread(target=webbrowser.open, args=(url,), daemon=True, name="browser").start()


class Console:
    def __init__(self, stream: TextIO, environ: Mapping[str, str] = os.environ) -> None:
        self._stream = stream
        self.is_terminal = stream.isatty()
        self.has_colour = self.is_terminal and not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"

    @property
    def width(self) -> int:
        """The width of the terminal in characters, or a large number if the output is not a terminal."""
        return shutil.get_terminal_size().columns if self.is_terminal else 10_000

    def line(self, text: str = "") -> None:
        """Write one or more lines. On a terminal, remove control sequences other than the styles of this program."""
        pieces = _OWN_STYLE.split(text) if self.has_colour else [text]
        text = "".join(each if index % 2 else self.clean(each) for index, each in enumerate(pieces))
        self._stream.write(text if text.endswith("\n") else text + "\n")
        self._stream.flush()

    def prompt(self, text: str) -> None:
        """Write a prompt without a line end, so that the user types on the same line."""
        self._stream.write(self.clean(text))
        self._stream.flush()

    def foreign(self, text: str) -> None:
        self.line(self.clean(text))

    def clean(self, text: str) -> str:
        return _printable(text) if self.is_terminal else text

    def fact(self, label: str, text: str, *, width: int) -> None:
        """Write a label and text. Further lines of the text are indented to align with the first line."""
        first, *others = self.clean(text).splitlines() or [""]
        self.line(f"  {self.styled(label.ljust(width), 'cyan')}  {first}".rstrip())
        for line in others:
            self.line(f"  {' ' * width}  {line}".rstrip())

    def styled(self, text: str, style: str) -> str:
        return f"\x1b[{_STYLES[style]}m{text}\x1b[0m" if self.has_colour else text

    def changed(self, line: str) -> str:
        text, style = self.clean(line), SIGN_STYLES.get(line[:1])
        return self.styled(text, style) if style else text

    def cut(self, text: str, *, beside: int) -> str:
        room = max(self.width - beside, 20)
        return text if len(text) <= room else text[: room - 1] + "…"

    def table(self, rows: Iterable[Sequence[str]], *, style: str = "bold") -> None:
        """Write a table. Apply `style` to the first column, and truncate the last column to the terminal width."""
        cells = [[_one_line(cell) for cell in row] for row in rows]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        for row in cells:
            padded = [cell.ljust(width) for cell, width in zip(row[:-1], widths, strict=False)]
            last = self.cut(row[-1], beside=sum(map(len, padded)) + 2 * len(padded))
            self.line("  ".join([self.styled(padded[0], style), *padded[1:], last]).rstrip())


@contextmanager
def protect_stdout() -> Iterator[None]:
    """Redirect `sys.stdout` and descriptor 1 to standard error.

    Plugins can print, but standard output is reserved for the result of the command.
    """
    sys.stdout.flush()
    kept = os.dup(1)
    # Redirect the descriptor as well as the object, because C code and child processes write to the descriptor.
    os.dup2(2, 1)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)


def say(value: Json) -> str:
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
    return f"{count} {noun if count == 1 else several or f'{noun}s'}"


def left_out_lines(
    left_out: Iterable[JsonObject], *, lists_all: bool, hint: str, where: str = " here"
) -> Iterator[str]:
    """Yield a line for each definition that is not served.

    Unless `lists_all` is set, the operations of an OpenAPI document are only counted, in a line that ends with `hint`.
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
    """Remove terminal control sequences, and escape characters that hide or reorder text."""
    return visible(strip_control_characters(text), has_lines=True)
