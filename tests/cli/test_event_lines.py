"""Lines for the events of `dev`."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec.structs import replace

from gateway.cli.commands.dev.event_lines import EventLines, Line, StatusSnapshot, log_line
from gateway.config.secrets.redactor import Redactor
from gateway.errors import Problem, RpcError
from gateway.json_types import Json
from gateway.telemetry.observer import CallFacts, CallResult, Outcome


def text_of(line: Line) -> str:
    """Return the line without its time."""
    return "".join(text for text, _ in line)[11:]


class Shown(EventLines):
    """Event lines that collect the text of what they show."""

    def __init__(self, *, shows_all_problems: bool = True) -> None:
        self.texts: list[str] = []
        super().__init__(lambda line: self.texts.append(text_of(line)), shows_all_problems=shows_all_problems)

    def after(self, snapshot: StatusSnapshot) -> list[str]:
        self.texts.clear()
        self.take_snapshot(snapshot)
        return self.texts


def call_of(arguments: Json) -> CallFacts:
    facts: dict[str, Any] = {
        "id": "1",
        "name": "du",
        "params": {"name": "du", "arguments": arguments},
        "terms": SimpleNamespace(client_info={"name": "ed", "version": "1"}),
        "catalog": SimpleNamespace(redactor=Redactor([])),
    }
    return cast("CallFacts", SimpleNamespace(**facts))


def snapshot(*sessions: Json, problems: tuple[Problem, ...] = (), generation: int | None = 1) -> StatusSnapshot:
    status = {} if generation is None else {"generation": generation, "clients": {"sessions": list(sessions)}}
    return StatusSnapshot(status=status, url=None if generation is None else "http://h/mcp", problems=problems)


def session(client: str, sessions: int) -> Json:
    return {"client": client, "revision": "2025-06-18", "transport": "stdio", "sessions": sessions}


def test_ended_call_is_shown_once_with_the_reason_of_its_failure() -> None:
    shown, call = Shown(), call_of({"a": 1})
    shown.began(call)
    assert list(shown.running) == ["1"]
    failed = CallResult(outcome=Outcome.PROTOCOL_ERROR, seconds=1.26, error=RpcError(-32602, "No disk"))
    shown.ended(call, failed)
    shown.ended(call, failed)
    assert shown.texts == ['✗ du  {"a":1}  refused: No disk  1.3 s  ed 1']
    assert not shown.running


def test_long_arguments_are_truncated() -> None:
    shown, call = Shown(), call_of({"a": "x" * 5000})
    shown.began(call)
    shown.ended(call, CallResult(outcome=Outcome.OK, seconds=0.0014))
    [line] = shown.texts
    assert len(line) < 200
    assert line.endswith("…  1 ms  ed 1")


def test_connected_and_disconnected_clients_are_shown() -> None:
    shown = Shown()
    assert shown.after(snapshot()) == ["serving http://h/mcp"]
    assert shown.after(snapshot(session("ed 1", 2))) == ["+ ed 1 (2025-06-18, stdio) connected"]
    assert shown.after(snapshot(session("ed 1", 2))) == []
    assert shown.after(snapshot()) == ["- ed 1 (2025-06-18, stdio) left"]


def test_app_page_is_shown_once_with_its_url() -> None:
    shown = Shown()
    with_page = replace(snapshot(), apps={"sales": Path("/srv/ui/the sales.html")})
    assert shown.after(with_page) == [
        "serving http://h/mcp",
        "app sales  file:///srv/ui/the%20sales.html",
    ]
    assert shown.after(with_page) == []


def test_problems_and_their_end_are_shown_once() -> None:
    problem = Problem(message="is wrong", path="tools.x")
    in_full, in_short = Shown(), Shown(shows_all_problems=False)
    title = "✗ the file is invalid; generation 1 is still served"
    for shown, lines in ((in_full, [title, "tools.x: is wrong"]), (in_short, [title])):
        shown.after(snapshot())
        assert shown.after(snapshot(problems=(problem,))) == lines
        assert shown.after(snapshot(problems=(problem,))) == []
        assert shown.after(snapshot()) == ["✓ the file is valid again"]
    waiting = Shown(shows_all_problems=False)
    assert waiting.after(snapshot(problems=(problem,), generation=None)) == [
        "✗ the file is invalid; nothing is served until it is fixed"
    ]


def test_reload_without_changes_is_shown() -> None:
    shown = Shown()
    shown.reloaded(3, ())
    assert shown.texts == ["↻ generation 3: no changes"]


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
