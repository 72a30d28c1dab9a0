"""Lines that `dev` prints."""

from io import StringIO
from types import SimpleNamespace
from typing import Any, cast

from gateway.cli.commands.dev import ActivityLines
from gateway.cli.console import Console
from gateway.config.secrets.redactor import Redactor
from gateway.errors import Problem, RpcError
from gateway.json_types import Json, JsonObject
from gateway.telemetry.observer import CallFacts, CallResult, Outcome


class Shown(ActivityLines):
    """Activity lines that collect their text."""

    def __init__(self) -> None:
        self.stream: StringIO = StringIO()
        super().__init__(Console(self.stream))

    def taken(self) -> list[str]:
        """Return the new lines without their times."""
        lines = [line[11:] if line[2:3] == ":" else line for line in self.stream.getvalue().splitlines()]
        self.stream.seek(0)
        self.stream.truncate()
        return lines


def call_of(arguments: Json) -> CallFacts:
    facts: dict[str, Any] = {
        "id": "1",
        "name": "du",
        "params": {"name": "du", "arguments": arguments},
        "terms": SimpleNamespace(client_info={"name": "ed", "version": "1"}),
        "catalog": SimpleNamespace(redactor=Redactor([])),
    }
    return cast("CallFacts", SimpleNamespace(**facts))


def status(*sessions: Json) -> JsonObject:
    return {"clients": {"sessions": list(sessions)}}


def session(client: str, sessions: int) -> Json:
    return {"client": client, "revision": "2025-06-18", "transport": "stdio", "sessions": sessions}


def test_ended_call_is_shown_with_the_reason_of_its_failure() -> None:
    shown = Shown()
    failed = CallResult(outcome=Outcome.PROTOCOL_ERROR, seconds=1.26, error=RpcError(-32602, "No disk"))
    shown.ended(call_of({"a": 1}), failed)
    assert shown.taken() == ['✗ du  {"a":1}  refused: No disk  1.3 s  ed 1']


def test_long_arguments_are_truncated() -> None:
    shown = Shown()
    shown.ended(call_of({"a": "x" * 5000}), CallResult(outcome=Outcome.OK, seconds=0.0014))
    [line] = shown.taken()
    assert len(line) < 200
    assert line.endswith("…  1 ms  ed 1")


def test_connected_and_disconnected_clients_are_shown() -> None:
    shown = Shown()
    shown.show_clients(status(session("ed 1", 2)))
    assert shown.taken() == ["+ ed 1 (2025-06-18, stdio) connected"]
    shown.show_clients(status(session("ed 1", 2)))
    assert shown.taken() == []
    shown.show_clients(status())
    assert shown.taken() == ["- ed 1 (2025-06-18, stdio) left"]


def test_address_is_shown_once() -> None:
    shown = Shown()
    for _ in range(2):
        shown.show_address("serving", "http://127.0.0.1:8000/mcp")
    assert shown.taken() == ["serving http://127.0.0.1:8000/mcp"]


def test_problems_and_their_end_are_shown_once() -> None:
    problem, shown = Problem(message="is wrong", path="tools.x"), Shown()
    for _ in range(2):
        shown.show_problems([problem], generation=1)
    assert shown.taken() == ["✗ the file is invalid; generation 1 is still served", "tools.x: is wrong"]
    for _ in range(2):
        shown.show_problems((), generation=1)
    assert shown.taken() == ["✓ the file is valid again"]
    shown.show_problems([problem], generation=None)
    assert shown.taken()[0] == "✗ the file is invalid; nothing is served until it is fixed"


def test_reload_without_changes_is_shown() -> None:
    shown = Shown()
    shown.reloaded(3, ())
    assert shown.taken() == ["↻ generation 3: no changes"]
