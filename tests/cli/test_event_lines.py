"""Lines for the events of `dev`."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from gateway.cli.commands.dev.developing import CallEnded, CallStarted, DevEvent, Reloaded, StatusSnapshot
from gateway.cli.commands.dev.event_lines import EventLines, Line, log_line
from gateway.errors import Problem
from gateway.json_types import Json


def text_of(line: Line) -> str:
    """Return the line without its time."""
    return "".join(text for text, _ in line)[11:]


def nowhere(_line: Line) -> None:
    """Discard the line."""


def lines_of(event_lines: EventLines, event: DevEvent) -> list[str]:
    return [text_of(line) for line in event_lines.take(event)]


def snapshot(*sessions: Json, problems: tuple[Problem, ...] = (), generation: int | None = 1) -> StatusSnapshot:
    status = {} if generation is None else {"generation": generation, "clients": {"sessions": list(sessions)}}
    return StatusSnapshot(status=status, url=None if generation is None else "http://h/mcp", problems=problems)


def session(client: str, sessions: int) -> Json:
    return {"client": client, "revision": "2025-06-18", "transport": "stdio", "sessions": sessions}


def test_ended_call_is_shown_as_a_line() -> None:
    event_lines = EventLines(nowhere, has_problems_in_full=True)
    assert lines_of(event_lines, CallStarted(id="1", what="du", arguments='{"a":1}', client="ed 1")) == []
    assert list(event_lines.running) == ["1"]
    ended = CallEnded(id="1", is_good=False, outcome="tool error", seconds=1.26)
    assert lines_of(event_lines, ended) == ['✗ du  {"a":1}  tool error  1.3 s  ed 1']
    assert not event_lines.running
    assert lines_of(event_lines, ended) == []


def test_long_arguments_are_cut() -> None:
    event_lines = EventLines(nowhere, has_problems_in_full=True)
    lines_of(event_lines, CallStarted(id="1", what="du", arguments="x" * 5000, client="ed"))
    [line] = lines_of(event_lines, CallEnded(id="1", is_good=True, outcome="", seconds=0.0014))
    assert len(line) < 200
    assert line.endswith("…  1 ms  ed")


def test_connected_and_disconnected_clients_are_shown() -> None:
    event_lines = EventLines(nowhere, has_problems_in_full=True)
    assert lines_of(event_lines, snapshot()) == ["serving http://h/mcp"]
    assert lines_of(event_lines, snapshot(session("ed 1", 2))) == ["+ ed 1 (2025-06-18, stdio) connected"]
    assert lines_of(event_lines, snapshot(session("ed 1", 2))) == []
    assert lines_of(event_lines, snapshot()) == ["- ed 1 (2025-06-18, stdio) left"]


def test_app_page_is_shown_once_with_its_url() -> None:
    event_lines = EventLines(nowhere, has_problems_in_full=True)
    with_page = replace(snapshot(), apps={"sales": Path("/srv/ui/the sales.html")})
    assert lines_of(event_lines, with_page) == [
        "serving http://h/mcp",
        "app sales  file:///srv/ui/the%20sales.html",
    ]
    assert lines_of(event_lines, with_page) == []


def test_problems_and_their_end_are_shown_once() -> None:
    problem = Problem(message="is wrong", path="tools.x")
    in_full, in_short = EventLines(nowhere, has_problems_in_full=True), EventLines(nowhere, has_problems_in_full=False)
    title = "✗ the file is invalid; generation 1 is still served"
    for event_lines, lines in ((in_full, [title, "tools.x: is wrong"]), (in_short, [title])):
        lines_of(event_lines, snapshot())
        assert lines_of(event_lines, snapshot(problems=(problem,))) == lines
        assert lines_of(event_lines, snapshot(problems=(problem,))) == []
        assert lines_of(event_lines, snapshot()) == ["✓ the file is valid again"]
    waiting = EventLines(nowhere, has_problems_in_full=False)
    assert lines_of(waiting, snapshot(problems=(problem,), generation=None)) == [
        "✗ the file is invalid; nothing is served until it is fixed"
    ]


def test_reload_without_changes_is_shown() -> None:
    event_lines = EventLines(nowhere, has_problems_in_full=True)
    assert lines_of(event_lines, Reloaded(generation=3, changes=())) == ["↻ generation 3: no changes"]


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ('{"event": "plugin raised", "level": "error", "timestamp": "t", "tool": "x"}', "error plugin raised  tool=x"),
        ('{"event": "slow", "level": "warning", "count": 2}', "warning slow  count=2"),
        ('{"event": "reload refused", "level": "error"}', None),
        ('{"event": "listening", "url": "x"}', None),
    ],
)
def test_log_records_are_formatted_or_hidden(written: str, shown: str | None) -> None:
    line = log_line(written)
    assert (None if line is None else text_of(line)) == shown


@pytest.mark.parametrize("written", ["plain text", "{broken", '["event"]', '{"no": "event"}', "3", ""])
def test_other_output_is_shown_unchanged(written: str) -> None:
    assert log_line(written) == [(written, "")]
