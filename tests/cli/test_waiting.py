"""The waiting line of slow commands."""

import os
from pathlib import Path

import pytest

from gateway.cli.console import Console
from tests.cli.terminal import TERMINAL, Terminal
from tests.cli.typed import CONFIG

ERASE = "\r\x1b[2K"
WAITS = """\
tools:
  wait:
    description: Waits for a file.
    shell: {script: 'echo begun; until [ -e go ]; do sleep 0.05; done; echo done', progress: stdout, cwd: .}
"""


def test_slow_call_shows_a_waiting_line(tmp_path: Path) -> None:
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
def test_nothing_is_redrawn_without_a_terminal(environ: dict[str, str], *, is_redrawable: bool) -> None:
    reading, writing = os.openpty()
    with open(writing, "w") as stream:  # noqa: PTH123 - a descriptor
        assert Console(stream, environ).is_redrawable is is_redrawable
    os.close(reading)
    reading, writing = os.pipe()
    with open(writing, "w") as stream:  # noqa: PTH123 - a descriptor
        assert not Console(stream, environ).is_redrawable
    os.close(reading)


def test_fast_command_shows_no_waiting_line(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(CONFIG)
    terminal = Terminal(tmp_path, "call", "greet", "name=Ada", environ={**TERMINAL, "CI": "true"})
    assert terminal.ended() == 0
    assert "\x1b[2K" not in terminal.shown
    assert "Hello, Ada" in terminal.shown
