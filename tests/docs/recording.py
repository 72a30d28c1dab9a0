"""Runs a terminal session, and renders it as an SVG that is animated with CSS."""

import os
import re
import select
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self
from xml.sax.saxutils import escape

SECONDS: Final = 60
COLUMNS: Final = 112
LINE: Final = 18
"""The height of a line in pixels. `_WIDTH` is the width of a column."""
_WIDTH: Final = 7.83
_TYPING: Final = 0.045
"""Seconds per character."""
_THINKING: Final = 0.9
_READING: Final = 1.6
_SGR: Final = re.compile(r"\x1b\[([0-9;]*)m")
_OTHER: Final = re.compile(r"\x1b\[[0-?]*[ -/]*[@-ln-~]|\x1b[()][A-Z0-9]|\x07")
_CLASSES: Final = {"1": "b", "2": "d", "31": "r", "32": "g", "33": "y", "34": "u", "35": "m", "36": "c"}


@dataclass(frozen=True)
class Line:
    """A line of the terminal with its colours. Commands are animated as typed text."""

    text: str
    is_typed: bool = False


@dataclass(kw_only=True)
class Session:
    """Runs commands in a directory, each on a terminal."""

    folder: Path
    environ: Mapping[str, str]
    renamed: Mapping[str, str]
    """Replacements for text that varies, such as a free port."""
    lines: list[Line] = field(default_factory=list)
    _background: list[tuple[subprocess.Popen[bytes], int]] = field(default_factory=list)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process, reading in self._background:
            process.terminate()
            _read(reading, until=None)
            process.wait(SECONDS)
            os.close(reading)

    def run(self, command: str) -> str:
        """Run a command, and show it with its output."""
        process, reading = self._start(command)
        text = _read(reading, until=None)
        assert process.wait(SECONDS) == 0, text
        os.close(reading)
        self._show(text)
        return text

    def begin(self, command: str, *, until: str) -> None:
        """Start a command in the background, and show its output up to the line with a text."""
        started = self._start(command, shown=f"{command} &")
        self._background.append(started)
        self._show(_read(started[1], until=until))

    def hear(self, *, until: str) -> None:
        """Show the next output of the command in the background, up to the line with a text."""
        self._show(_read(self._background[-1][1], until=until))

    def _start(self, command: str, *, shown: str = "") -> tuple[subprocess.Popen[bytes], int]:
        self.lines.append(Line(f"$ {self._renamed(shown or command)}", is_typed=True))
        reading, theirs = os.openpty()
        process = subprocess.Popen(
            ["bash", "-c", f"exec {command}"],
            cwd=self.folder,
            env={**os.environ, **self.environ, "TERM": "xterm-256color", "COLUMNS": str(COLUMNS)},
            stdin=subprocess.DEVNULL,
            stdout=theirs,
            stderr=theirs,
        )
        os.close(theirs)
        return process, reading

    def _show(self, text: str) -> None:
        for line in self._renamed(_OTHER.sub("", text).replace("\r", "")).splitlines():
            self.lines += (Line(each) for each in _wrapped(line))

    def _renamed(self, text: str) -> str:
        for old, new in self.renamed.items():
            text = text.replace(old, new)
        return text


def _read(reading: int, *, until: str | None) -> str:
    """Return the output up to the end of the line with that text. None: all output."""
    text, deadline = "", time.monotonic() + SECONDS
    while until is None or not re.search(rf"{re.escape(until)}[^\n]*\n", text):
        ready, _, _ = select.select([reading], [], [], max(0, deadline - time.monotonic()))
        assert ready, text
        try:
            chunk = os.read(reading, 65536)
        except OSError:  # on Linux, the other end is closed
            chunk = b""
        if not chunk:
            assert until is None, text
            break
        text += chunk.decode()
    return text


def _wrapped(line: str) -> Iterator[str]:
    """Split a line at the width of the terminal. Colour codes have no width, and are reset at the end of each part."""
    piece, room, style = "", COLUMNS, ""
    for part in re.split(r"(\x1b\[[0-9;]*m)", line):
        if part.startswith("\x1b"):
            style = "" if part in {"\x1b[0m", "\x1b[m"} else style + part
            piece += part
            continue
        for char in part:
            if not room:
                yield piece + "\x1b[0m" * bool(style)
                piece, room = style, COLUMNS
            piece, room = piece + char, room - 1
    yield piece


def picture(lines: list[Line], *, title: str) -> str:
    """Return the SVG. With reduced motion, it shows the last frame."""
    moments, now = [], _THINKING
    for at, line in enumerate(lines):
        if line.is_typed and at:
            now += _READING
        moments.append(now)
        now += len(line.text) * _TYPING + _THINKING if line.is_typed else 0.06
    width, height = round(COLUMNS * _WIDTH + 32), len(lines) * LINE + 48
    drawn = "\n".join(_drawn(at, line, moments[at]) for at, line in enumerate(lines))
    return f"""\
<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" role="img">
<title>{escape(title)}</title>
<style>
text {{ font: 13px/1 ui-monospace, "SF Mono", "DejaVu Sans Mono", Menlo, Consolas, monospace; }}
text {{ fill: #d7dde6; white-space: pre; }}
.b {{ font-weight: 700; }} .d {{ fill: #8d97a7; }} .r {{ fill: #ff8f87; }} .g {{ fill: #7bd88f; }}
.y {{ fill: #e6c15c; }} .u {{ fill: #84b1ff; }} .m {{ fill: #d69bff; }} .c {{ fill: #62d0dd; }}
.p {{ fill: #fff; font-weight: 700; }}
.o {{ animation: show .01s linear both; }} .t {{ animation: type 1s both; }}
@keyframes show {{ from {{ opacity: 0; }} }}
@keyframes type {{ from {{ clip-path: inset(-4px 100% -4px 0); }} to {{ clip-path: inset(-4px 0 -4px 0); }} }}
@media (prefers-reduced-motion: reduce) {{ .o, .t {{ animation: none; }} }}
</style>
<rect width="{width}" height="{height}" rx="8" fill="#171b22"/>
<g fill="#3a4250"><circle cx="20" cy="17" r="5"/><circle cx="38" cy="17" r="5"/><circle cx="56" cy="17" r="5"/></g>
<g transform="translate(16 34)">
{drawn}
</g>
</svg>
"""


def _drawn(at: int, line: Line, moment: float) -> str:
    y = at * LINE + 14
    if line.is_typed:
        seconds = len(line.text) * _TYPING
        style = f"animation-delay:{moment:.2f}s;animation-duration:{seconds:.2f}s"
        style += f";animation-timing-function:steps({len(line.text)})"
        return f'<text class="p t" y="{y}" style="{style}">{escape(line.text)}</text>'
    return f'<text class="o" y="{y}" style="animation-delay:{moment:.2f}s">{_coloured(line.text)}</text>'


def _coloured(text: str) -> str:
    """Return the text with a `tspan` for each colour."""
    classes: set[str] = set()
    found = []
    for at, part in enumerate(_SGR.split(text)):
        if at % 2:
            for code in part.split(";"):
                if code in {"", "0"}:
                    classes.clear()
                elif code in _CLASSES:
                    classes.add(_CLASSES[code])
        elif part:
            names = " ".join(sorted(classes))
            found.append(f'<tspan class="{names}">{escape(part)}</tspan>' if classes else escape(part))
    return "".join(found)
