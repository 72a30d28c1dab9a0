"""Converts events of `dev` and other output of the process into styled lines."""

import json
import os
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Final

from gateway.cli.commands.dev.developing import CallEnded, CallStarted, DevEvent, Reloaded, StatusSnapshot
from gateway.cli.console import SIGN_STYLES, Console
from gateway.config.diagnostics.render import render
from gateway.json_types import Json

Piece = tuple[str, str]
"""Text and its style, which is a name of `gateway.cli.console` or empty."""
Line = list[Piece]

_MAX_ARGUMENTS_LENGTH: Final = 120
_SHOWN_OTHERWISE: Final = frozenset({"loaded", "listening", "reloaded", "reload refused", "stopping"})
"""Log events that the view shows in another way."""
_LEVELS: Final = {"error": "red", "critical": "red", "warning": "yellow", "debug": "dim"}
_FRAME: Final = frozenset({"timestamp", "level", "event"})


class EventLines:
    def __init__(self, show: Callable[[Line], None], *, has_problems_in_full: bool) -> None:
        """`show` receives each line, in any thread. `has_problems_in_full` shows all problems instead of a summary."""
        self._show: Final = show
        self._has_problems_in_full: Final = has_problems_in_full
        self.running: Final[dict[str, tuple[CallStarted, datetime]]] = {}
        """Running calls with their start times, by id and in start order."""
        self.snapshot = StatusSnapshot(status={}, url=None, problems=())
        self._clients: Counter[str] = Counter()
        self._has_served = False

    def report(self, event: DevEvent) -> None:
        for line in self.take(event):
            self._show(line)

    def written(self, line: str) -> None:
        if (shown := log_line(line)) is not None:
            self._show(shown)

    def take(self, event: DevEvent) -> Iterator[Line]:
        match event:
            case CallStarted():
                self.running[event.id] = (event, datetime.now(UTC))
            case CallEnded():
                yield from self._ended(event)
            case Reloaded():
                yield from _reloaded(event)
            case StatusSnapshot():
                yield from self._snapshot_taken(event)

    def _ended(self, ending: CallEnded) -> Iterator[Line]:
        began, _ = self.running.pop(ending.id, (None, None))
        if began is None:
            return
        mark = ("✓ ", "green") if ending.is_good else ("✗ ", "red")
        yield [
            clock(),
            mark,
            (began.what, "bold"),
            *_spaced((cut(began.arguments), "")),
            *_spaced((ending.outcome, "" if ending.is_good else "red")),
            *_spaced((shown_seconds(ending.seconds), "dim")),
            *_spaced((began.client, "dim")),
        ]

    def _snapshot_taken(self, snapshot: StatusSnapshot) -> Iterator[Line]:
        before, self.snapshot = self.snapshot, snapshot
        if snapshot.url is not None and not self._has_served:
            self._has_served = True
            yield [clock(), ("serving ", ""), (snapshot.url, "bold")]
        for tool, page in snapshot.apps.items():
            if before.apps.get(tool) != page:
                yield [clock(), ("app ", ""), (tool, "bold"), ("  ", ""), (page.absolute().as_uri(), "")]
        if snapshot.problems != before.problems:
            yield from _problems(snapshot, in_full=self._has_problems_in_full)
        clients = Counter(_clients(snapshot.status))
        yield from (
            [clock(), ("+ ", "green"), (client, ""), (" connected", "dim")] for client in clients - self._clients
        )
        yield from ([clock(), ("- ", "red"), (client, ""), (" left", "dim")] for client in self._clients - clients)
        self._clients = clients


def plain_lines(console: Console) -> Callable[[Line], None]:
    """Return a function that writes plain lines, for output without a terminal or without the extra `dev`.

    If the reader has closed the pipe, the function stops the process.
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
                # A signal, because this runs in any thread.
                os.kill(os.getpid(), signal.SIGTERM)

    return show


def log_line(line: str) -> Line | None:
    """Convert a log record or other output into a styled line. Return None for hidden events."""
    try:
        entry = json.loads(line)
        event = entry.pop("event")
    except (ValueError, TypeError, KeyError, AttributeError):
        return [(line, "")]
    if event in _SHOWN_OTHERWISE:
        return None
    level = str(entry.get("level", "info"))
    facts = "".join(f"  {key}={_plain(value)}" for key, value in entry.items() if key not in _FRAME)
    return [clock(), (f"{level} ", _LEVELS.get(level, "cyan")), (str(event), ""), (facts, "dim")]


def _reloaded(reloaded: Reloaded) -> Iterator[Line]:
    note = "" if reloaded.changes else ": no changes"
    yield [clock(), ("↻ ", "cyan"), (f"generation {reloaded.generation}{note}", "bold")]
    for change in reloaded.changes:
        yield [
            ("           ", ""),
            (f"{change.sign} {change.place}", SIGN_STYLES[change.sign]),
            (f"  {change.what}", "dim"),
        ]


def _problems(snapshot: StatusSnapshot, *, in_full: bool) -> Iterator[Line]:
    if not snapshot.problems:
        yield [clock(), ("✓ ", "green"), ("the file is valid again", "bold")]
        return
    yield [clock(), ("✗ ", "red"), (title_of_problems(snapshot), "red")]
    for line in render(snapshot.problems, colour=False).splitlines() if in_full else ():
        yield [(f"           {line}", "")]


def title_of_problems(snapshot: StatusSnapshot) -> str:
    generation = snapshot.status.get("generation")
    meanwhile = (
        "nothing is served until it is fixed" if generation is None else f"generation {generation} is still served"
    )
    return f"the file is invalid; {meanwhile}"


def _clients(status: Mapping[str, Json]) -> Iterator[str]:
    for entry in status.get("clients", {}).get("sessions", ()):
        if entry["client"] is not None:
            yield from [f"{entry['client']} ({entry['revision']}, {entry['transport']})"] * entry["sessions"]


def clock() -> Piece:
    return datetime.now().astimezone().strftime("%H:%M:%S   "), "dim"


def cut(text: str) -> str:
    return text if len(text) <= _MAX_ARGUMENTS_LENGTH else text[: _MAX_ARGUMENTS_LENGTH - 1] + "…"


def shown_seconds(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"


def _spaced(piece: Piece) -> list[Piece]:
    text, style = piece
    return [(f"  {text}", style)] if text else []


def _plain(value: Json) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
