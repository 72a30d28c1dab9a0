"""Converts calls, reloads, status changes and log output into styled lines."""

import json
import os
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
import orjson

from gateway.cli.console import SIGN_STYLES, Console
from gateway.config.diagnostics.render import render
from gateway.errors import Problem
from gateway.json_types import Json, JsonObject, empty
from gateway.reload.planning import Change
from gateway.telemetry.logs import title_of
from gateway.telemetry.observer import CallFacts, CallResult, Outcome

Line = list[tuple[str, str]]
"""Pairs of a string and a style. A style is empty or one of the names in `gateway.cli.console`."""

_MAX_REASON: Final = 300
_MAX_ARGUMENTS_LENGTH: Final = 120
_OUTCOMES: Final = {
    Outcome.OK: "",
    Outcome.TOOL_ERROR: "tool error",
    Outcome.PROTOCOL_ERROR: "refused",
    Outcome.INPUT_REQUIRED: "asks the user",
    Outcome.CANCELLED: "cancelled",
}
_HIDDEN_EVENTS: Final = frozenset({"loaded", "listening", "reloaded", "reload refused", "stopping"})
"""Log events that are not shown, because snapshots and reloads already show the same information."""
_LEVELS: Final = {"error": "red", "critical": "red", "warning": "yellow", "debug": "dim"}
_FRAME: Final = frozenset({"timestamp", "level", "event"})


class RunningCall(NamedTuple):
    what: str
    """The name of the definition, or the requested name or URI if there is no such definition."""
    arguments: str
    client: str
    began: datetime


class StatusSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The state of the daemon, which is captured several times per second."""

    status: JsonObject
    """The body of `/-/status`, or an empty object until the server has started."""
    url: str | None
    problems: tuple[Problem, ...]
    """The errors that prevent the file from being served."""
    apps: Mapping[str, Path] = msgspec.field(default_factory=empty)
    """The file of each tool's UI page, by tool name."""


class EventLines:
    """Shows calls, reloads, status changes and log output as lines. Calls `show` with each line, from any thread."""

    def __init__(self, show: Callable[[Line], None], *, shows_all_problems: bool) -> None:
        self._show: Final = show
        self._shows_all_problems: Final = shows_all_problems
        self.running: Final[dict[str, RunningCall]] = {}
        """Running calls by call id, in the order in which the calls started."""
        self.snapshot = StatusSnapshot(status={}, url=None, problems=())
        self._clients: Counter[str] = Counter()
        self._has_served = False

    def began(self, call: CallFacts) -> None:
        params = call.params
        asked: Json = params.get("name") or params.get("uri") or params.get("ref")
        arguments = params.get("arguments") or params.get("argument") or ({"uri": asked} if "uri" in params else {})
        shown = _as_json(call.catalog.redactor.json(arguments))
        self.running[call.id] = RunningCall(
            call.name or f"{asked} (unknown)",
            shown if len(shown) <= _MAX_ARGUMENTS_LENGTH else shown[: _MAX_ARGUMENTS_LENGTH - 1] + "…",
            title_of(call.terms.client_info),
            datetime.now(UTC),
        )

    def ended(self, call: CallFacts, ending: CallResult) -> None:
        if (running := self.running.pop(call.id, None)) is None:
            return
        is_good = ending.outcome in {Outcome.OK, Outcome.INPUT_REQUIRED}
        reason = call.catalog.redactor.text(ending.reason)[:_MAX_REASON]
        outcome = ": ".join(filter(None, (_OUTCOMES[ending.outcome], reason)))
        facts = (
            (running.arguments, ""),
            (outcome, "" if is_good else "red"),
            (shown_seconds(ending.seconds), "dim"),
            (running.client, "dim"),
        )
        mark = ("✓ ", "green") if is_good else ("✗ ", "red")
        spaced = ((f"  {text}", style) for text, style in facts if text)
        self._show([_clock(), mark, (running.what, "bold"), *spaced])

    def written(self, line: str) -> None:
        if (shown := log_line(line)) is not None:
            self._show(shown)

    def reloaded(self, generation: int, changes: Sequence[Change]) -> None:
        note = "" if changes else ": no changes"
        self._show([_clock(), ("↻ ", "cyan"), (f"generation {generation}{note}", "bold")])
        for change in changes:
            place = (f"           {change.sign} {change.place}", SIGN_STYLES[change.sign])
            self._show([place, (f"  {change.what}", "dim")])

    def take_snapshot(self, snapshot: StatusSnapshot) -> None:
        """Store a snapshot, and show the differences from the previous snapshot."""
        before, self.snapshot = self.snapshot, snapshot
        if snapshot.url is not None and not self._has_served:
            self._has_served = True
            self._show([_clock(), ("serving ", ""), (snapshot.url, "bold")])
        for tool, page in snapshot.apps.items():
            if before.apps.get(tool) != page:
                self._show([_clock(), ("app ", ""), (tool, "bold"), (f"  {page.absolute().as_uri()}", "")])
        if snapshot.problems != before.problems:
            self._show_problems(snapshot)
        clients = Counter(_clients(snapshot.status))
        for client in clients - self._clients:
            self._show([_clock(), ("+ ", "green"), (client, ""), (" connected", "dim")])
        for client in self._clients - clients:
            self._show([_clock(), ("- ", "red"), (client, ""), (" left", "dim")])
        self._clients = clients

    def _show_problems(self, snapshot: StatusSnapshot) -> None:
        if not snapshot.problems:
            self._show([_clock(), ("✓ ", "green"), ("the file is valid again", "bold")])
            return
        self._show([_clock(), ("✗ ", "red"), (title_of_problems(snapshot), "red")])
        if self._shows_all_problems:
            for line in render(snapshot.problems, colour=False).splitlines():
                self._show([(f"           {line}", "")])


def plain_lines(console: Console) -> Callable[[Line], None]:
    """Return a function that prints a line without the live view.

    If the reader of the output has closed the pipe, printing a line stops the process.
    """
    lock, is_unread = threading.Lock(), threading.Event()

    def show(line: Line) -> None:
        cleaned = ((console.clean(text), style) for text, style in line)
        text = "".join(console.styled(text, style) if style else text for text, style in cleaned)
        with lock:
            if is_unread.is_set():
                return
            try:
                console.line(text)
            except BrokenPipeError:  # the reader has closed the pipe
                is_unread.set()
                # Stop the process with a signal, because any thread can run this code.
                os.kill(os.getpid(), signal.SIGTERM)

    return show


def log_line(line: str) -> Line | None:
    """Convert a log record or other output into a styled line, or return None for a hidden event."""
    try:
        entry = json.loads(line)
        event = entry.pop("event")
    except (ValueError, TypeError, KeyError, AttributeError):
        return [(line, "")]
    if event in _HIDDEN_EVENTS:
        return None
    level = str(entry.get("level", "info"))
    facts = "".join(f"  {key}={_plain(value)}" for key, value in entry.items() if key not in _FRAME)
    return [_clock(), (f"{level} ", _LEVELS.get(level, "cyan")), (str(event), ""), (facts, "dim")]


def title_of_problems(snapshot: StatusSnapshot) -> str:
    generation = snapshot.status.get("generation")
    served = "nothing is served until it is fixed" if generation is None else f"generation {generation} is still served"
    return f"the file is invalid; {served}"


def shown_seconds(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"


def _clients(status: JsonObject) -> Iterator[str]:
    for entry in status.get("clients", {}).get("sessions", ()):
        if entry["client"] is not None:
            yield from [f"{entry['client']} ({entry['revision']}, {entry['transport']})"] * entry["sessions"]


def _clock() -> tuple[str, str]:
    return datetime.now().astimezone().strftime("%H:%M:%S   "), "dim"


def _as_json(value: Json) -> str:
    try:
        return orjson.dumps(value).decode() if value else ""
    except TypeError:  # orjson rejects integers of more than 64 bits and lone surrogates
        return repr(value)


def _plain(value: Json) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
