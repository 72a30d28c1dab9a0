"""The live view of `dev`: scrolling lines, and the current state of the server below the lines.

The view needs `rich`, which measures characters and handles resizing. `rich` is only in the extra `dev`, because
structlog imports `rich` if it is installed, and the import doubles the startup time of every command.
"""

from collections import deque
from collections.abc import Iterator
from datetime import UTC, datetime
from types import TracebackType
from typing import Final, Self, TextIO

from rich.console import Console as RichConsole
from rich.console import Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.rule import Rule
from rich.text import Text

from gateway.cli.commands.dev.event_lines import EventLines, Line, StatusSnapshot, shown_seconds, title_of_problems
from gateway.cli.console import Console, counted
from gateway.config.diagnostics.render import render

_KINDS: Final = ("tool", "resource", "prompt")
_KEPT: Final = 200
_MAX_CALLS: Final = 8


class LiveView(EventLines):
    def __init__(self, console: Console, stream: TextIO, *, config: str) -> None:
        super().__init__(self._print, shows_all_problems=False)
        self._plain_console: Final = console
        self._config: Final = config
        self._latest: Final[deque[Text]] = deque(maxlen=_KEPT)
        """The latest lines, which are printed again after a resize, because terminals do not unwrap lines."""
        self._console: Final = RichConsole(
            file=stream, force_terminal=True, highlight=False, no_color=not console.has_colour
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

    def take_snapshot(self, snapshot: StatusSnapshot) -> None:
        if self._console.width != self._width:
            self._redraw()
        super().take_snapshot(snapshot)

    def _print(self, line: Line) -> None:
        text = self._text(line)
        self._latest.append(text)
        # The terminal wraps the line, so that copied text stays on one line.
        self._console.print(text, soft_wrap=True)

    def _redraw(self) -> None:
        self._width = self._console.width
        self._live.stop()
        self._console.clear()
        for text in tuple(self._latest)[-self._console.height :]:
            self._console.print(text, soft_wrap=True)
        self._live = self._region_below()  # the old object would continue at its old position
        self._live.start()

    def _region_below(self) -> Live:
        return Live(
            console=self._console,
            get_renderable=lambda: Group(*self._parts()),
            refresh_per_second=4,
            transient=True,
            # `raw_terminal` already redirects standard output and standard error.
            redirect_stdout=False,
            redirect_stderr=False,
            vertical_overflow="crop",
        )

    def _text(self, line: Line) -> Text:
        return Text.assemble(*((self._plain_console.clean(text), style) for text, style in line))

    def _parts(self) -> Iterator[RenderableType]:
        snapshot = self.snapshot
        if snapshot.problems:
            room = max(self._console.height - _MAX_CALLS - 6, 3)
            lines = render(snapshot.problems, colour=False).splitlines()
            hidden = [f"… {len(lines) - room} more lines"] if len(lines) > room else []
            text = self._text([("\n".join([*lines[:room], *hidden]), "")])
            yield Panel(text, title=title_of_problems(snapshot), border_style="red", title_align="left")
        else:
            yield Rule(style="dim")
        # Copy the running calls, because the thread of the event loop changes them.
        running = list(self.running.values())
        for call in running[:_MAX_CALLS]:
            took = shown_seconds((datetime.now(UTC) - call.began).total_seconds())
            parts = [("▸ ", "cyan"), (call.what, "bold"), (f"  {call.arguments}", ""), (f"  {took}", "cyan")]
            yield self._one_line(parts)
        if len(running) > _MAX_CALLS:
            yield self._one_line([(f"  … and {len(running) - _MAX_CALLS} more", "dim")])
        for section in snapshot.status.get("restart_required", ()):
            yield self._one_line([(f"! {section} changed. Restart the server to apply the change", "yellow")])
        yield self._one_line(self._status_line())

    def _status_line(self) -> Line:
        snapshot = self.snapshot
        if not snapshot.status:
            return [("dev ", "bold"), (self._config, ""), ("  waiting for a valid file; Ctrl-C to stop", "dim")]
        status = snapshot.status
        counts = ", ".join(counted(len(status[f"{kind}s"]), kind) for kind in _KINDS if status[f"{kind}s"])
        facts = [
            snapshot.url or "",
            f"generation {status['generation']}",
            counts or "no definitions",
            counted(status["sessions"], "session"),
        ]
        state = [] if status["state"] == "ready" else [(f"  {status['state']}", "yellow")]
        return [("dev ", "bold"), (self._config, ""), (f"  {'  '.join(filter(None, facts))}", "dim"), *state]

    def _one_line(self, line: Line) -> Text:
        text = self._text(line)
        text.no_wrap, text.overflow = True, "ellipsis"
        return text
