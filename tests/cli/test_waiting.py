"""The line that says what a command waits for: on a terminal alone, above nothing, and gone at the end."""

import os
import select
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from gateway.cli.console import Console
from tests.cli.typed import CONFIG
from tests.fork_server import FORKED

SECONDS = 60
ERASE = "\r\x1b[2K"
WAITS = """\
tools:
  wait:
    description: Waits for a file.
    shell: {script: 'echo begun; until [ -e go ]; do sleep 0.05; done; echo done', progress: stdout, cwd: .}
"""
TERMINAL = {"TERM": "xterm-256color"}


class Terminal:
    """A command whose standard streams are a terminal, and what that has shown."""

    def __init__(self, folder: Path, *words: str, environ: Mapping[str, str]) -> None:
        kept = {key: value for key, value in os.environ.items() if not key.startswith("MCP_GATEWAY_") and key != "CI"}
        environment = {**kept, "MCP_GATEWAY_STATE_DIR": "none", **environ}
        self.shown = ""
        self._reading, theirs = os.openpty()
        self._process = subprocess.Popen(
            [FORKED, *words],
            cwd=folder,
            env=environment,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
        )
        os.close(theirs)

    def read_until(self, text: str) -> str:
        """All that was shown, up to when this stands in it; `""` is the end of the command."""
        deadline = time.monotonic() + SECONDS
        while not text or text not in self.shown:
            ready, _, _ = select.select([self._reading], [], [], max(0, deadline - time.monotonic()))
            assert ready, self.shown
            try:
                chunk = os.read(self._reading, 65536)
            except OSError:  # the other end is closed
                chunk = b""
            if not chunk:
                assert not text, self.shown
                return self.shown
            self.shown += chunk.decode()
        return self.shown

    def ended(self) -> int:
        self.read_until("")
        os.close(self._reading)
        return self._process.wait(SECONDS)


def test_a_call_that_takes_long_says_so_until_it_is_answered(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(WAITS)
    terminal = Terminal(tmp_path, "call", "wait", environ=TERMINAL)
    terminal.read_until("Calling wait … ")
    (tmp_path / "go").touch()
    assert terminal.ended() == 0
    *_, left = terminal.shown.rpartition(ERASE)
    assert left.splitlines()[-2:] == ["begun", "done"]
    assert "Calling" not in left
    lines = [line.rpartition(ERASE)[2] for line in terminal.shown.splitlines()]
    assert "[1] begun" in lines  # other lines go above it


@pytest.mark.parametrize(
    ("environ", "is_redrawable"),
    [
        (TERMINAL, True),
        ({"TERM": "dumb"}, False),
        ({}, False),
        ({**TERMINAL, "CI": "true"}, False),
        ({**TERMINAL, "NO_COLOR": "1"}, True),
    ],
)
def test_nothing_is_redrawn_where_each_change_would_be_a_line(environ: dict[str, str], *, is_redrawable: bool) -> None:
    reading, writing = os.openpty()
    with open(writing, "w") as stream:  # noqa: PTH123 - a descriptor
        assert Console(stream, environ).is_redrawable is is_redrawable
    os.close(reading)
    reading, writing = os.pipe()
    with open(writing, "w") as stream:  # noqa: PTH123 - a descriptor
        assert not Console(stream, environ).is_redrawable
    os.close(reading)


def test_a_command_that_is_quick_draws_nothing(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(CONFIG)
    terminal = Terminal(tmp_path, "call", "greet", "name=Ada", environ={**TERMINAL, "CI": "true"})
    assert terminal.ended() == 0
    assert "\x1b[2K" not in terminal.shown
    assert "Hello, Ada" in terminal.shown
