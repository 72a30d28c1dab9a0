"""What `dev` shows on a terminal: lines that stay, and below them what goes on right now. Needs the extra `dev`.

Why rich: it knows how wide letters are, and what to draw again when the window changes. Why an extra: the library that
logs loads it where it is there, and takes twice the time to start.
"""

from collections import deque
from collections.abc import Iterator
from datetime import UTC, datetime
from types import TracebackType
from typing import Final, Self, TextIO

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.rule import Rule
from rich.text import Text

from gateway.app import Happening
from gateway.cli.dev.happenings import Happenings, Line, cut, log_line, shown_seconds, title_of_problems
from gateway.cli.screen import Screen, counted
from gateway.config.diagnostics import render

_KINDS: Final = ("tool", "resource", "prompt")
_KEPT: Final = 200
_MOST_CALLS: Final = 8
"""Calls that run and are shown; more are counted."""


class LiveView:
    """Lines that scroll by, and below them the state of things, drawn anew several times a second."""

    def __init__(self, screen: Screen, stream: TextIO, *, config: str) -> None:
        self._screen: Final = screen
        self._config: Final = config
        self._happenings: Final = Happenings(tells_problems=False)
        self._lines: Final[deque[Text]] = deque(maxlen=_KEPT)
        """The latest, to be written again when the window's width has changed: what it wraps, it cannot unwrap."""
        self._console: Final = Console(
            file=stream, force_terminal=True, highlight=False, no_color=not screen.has_colour
        )
        self._width = self._console.width
        self._live = self._region_below()

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def tell(self, happening: Happening) -> None:
        if self._console.width != self._width:
            self._write_again()
        for line in self._happenings.take(happening):
            self._show(line)

    def written(self, line: str) -> None:
        if (shown := log_line(line)) is not None:
            self._show(shown)

    def _show(self, line: Line) -> None:
        text = self._text(line)
        self._lines.append(text)
        self._console.print(text, soft_wrap=True)

    def _write_again(self) -> None:
        self._width = self._console.width
        self._live.stop()
        self._console.clear()
        for text in tuple(self._lines)[-self._console.height :]:
            self._console.print(text, soft_wrap=True)
        self._live = self._region_below()  # another one: this one would begin where it was before
        self._live.start()

    def _region_below(self) -> Live:
        return Live(
            console=self._console,
            get_renderable=self._region,
            refresh_per_second=4,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
            vertical_overflow="crop",
        )

    def _text(self, line: Line) -> Text:
        return Text.assemble(*((self._screen.clean(text), style) for text, style in line))

    def _region(self) -> Group:
        return Group(*self._parts())

    def _parts(self) -> Iterator[RenderableType]:
        """Problems first, then what runs, then the line that says where we are."""
        glance = self._happenings.glance
        if glance.problems:
            room = max(self._console.height - _MOST_CALLS - 6, 3)
            lines = render(glance.problems, colour=False).splitlines()
            hidden = [f"… {len(lines) - room} lines more"] if len(lines) > room else []
            text = self._text([("\n".join([*lines[:room], *hidden]), "")])
            yield Panel(text, title=title_of_problems(glance), border_style="red", title_align="left")
        else:
            yield Rule(style="dim")
        running = list(self._happenings.running.values())
        for began, at in running[:_MOST_CALLS]:
            seconds = (datetime.now(UTC) - at).total_seconds()
            yield self._one_line(
                [
                    ("▸ ", "cyan"),
                    (began.what, "bold"),
                    (f"  {cut(began.arguments)}", ""),
                    (f"  {shown_seconds(seconds)}", "cyan"),
                ]
            )
        if len(running) > _MOST_CALLS:
            yield self._one_line([(f"  … and {len(running) - _MOST_CALLS} more", "dim")])
        for section in glance.status.get("restart_required", ()):
            yield self._one_line([(f"! {section} changed: takes effect with a restart", "yellow")])
        yield self._one_line(self._where())

    def _where(self) -> Line:
        glance = self._happenings.glance
        if not glance.status:
            return [("dev ", "bold"), (self._config, ""), ("  waits for the file to be right; Ctrl-C ends it", "dim")]
        status = glance.status
        counts = ", ".join(counted(len(status[f"{kind}s"]), kind) for kind in _KINDS if status[f"{kind}s"])
        facts = [
            glance.url or "",
            f"generation {status['generation']}",
            counts or "nothing on offer",
            counted(status["sessions"], "session"),
        ]
        state = [] if status["state"] == "ready" else [(f"  {status['state']}", "yellow")]
        return [("dev ", "bold"), (self._config, ""), (f"  {'  '.join(filter(None, facts))}", "dim"), *state]

    def _one_line(self, line: Line) -> Text:
        text = self._text(line)
        text.no_wrap, text.overflow = True, "ellipsis"
        return text
