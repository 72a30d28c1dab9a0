"""What `dev` shows where there is no terminal, or no library to draw on it: lines, one after the other."""

import os
import signal
import threading
from typing import Final, Protocol

from gateway.app import Happening
from gateway.cli.dev.happenings import Happenings, Line, log_line
from gateway.cli.screen import Screen


class View(Protocol):
    def tell(self, happening: Happening) -> None: ...
    def written(self, line: str) -> None:
        """Show a line that something in the process has written; called from any thread."""


class PlainView:
    """Lines, one after the other. When nobody reads them any more, the process is asked to stop."""

    def __init__(self, screen: Screen) -> None:
        self._screen: Final = screen
        self._happenings: Final = Happenings(tells_problems=True)
        self._lock: Final = threading.Lock()
        self._is_read = True

    def tell(self, happening: Happening) -> None:
        for line in self._happenings.take(happening):
            self._show(line)

    def written(self, line: str) -> None:
        if (shown := log_line(line)) is not None:
            self._show(shown)

    def _show(self, line: Line) -> None:
        screen = self._screen
        pieces = (screen.styled(screen.clean(text), style) if style else screen.clean(text) for text, style in line)
        with self._lock:
            if self._is_read:
                self._write("".join(pieces))

    def _write(self, text: str) -> None:
        try:
            self._screen.line(text)
        except BrokenPipeError:  # `| head` has read enough
            self._is_read = False
            os.kill(os.getpid(), signal.SIGTERM)
