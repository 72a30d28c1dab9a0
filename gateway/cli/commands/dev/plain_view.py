"""The view of `dev` without a terminal, or without the extra `dev`: lines, one after the other."""

import os
import signal
import threading
from typing import Final, Protocol

from gateway.cli.commands.dev.developing import DevEvent
from gateway.cli.commands.dev.event_lines import EventLines, Line, log_line
from gateway.cli.console import Console


class View(Protocol):
    """Shows events, and what else the process writes."""

    def report(self, event: DevEvent) -> None:
        """Show an event; called on the event loop's thread."""

    def written(self, line: str) -> None:
        """Show a line that something in the process has written; called from any thread."""


class PlainView:
    """Writes lines. If their reader is gone, the process is asked to stop."""

    def __init__(self, console: Console) -> None:
        self._console: Final = console
        self._event_lines: Final = EventLines(has_problems_in_full=True)
        self._lock: Final = threading.Lock()
        self._is_read = True

    def report(self, event: DevEvent) -> None:
        for line in self._event_lines.take(event):
            self._show(line)

    def written(self, line: str) -> None:
        if (shown := log_line(line)) is not None:
            self._show(shown)

    def _show(self, line: Line) -> None:
        console = self._console
        pieces = (console.styled(console.clean(text), style) if style else console.clean(text) for text, style in line)
        with self._lock:
            if self._is_read:
                self._write("".join(pieces))

    def _write(self, text: str) -> None:
        try:
            self._console.line(text)
        except BrokenPipeError:  # `| head` has read enough
            self._is_read = False
            os.kill(os.getpid(), signal.SIGTERM)
