"""Puts what happens while a file is developed into lines of styled text. Writes nothing."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Final

from gateway.app import CallBegan, CallEnded, Glance, Happening, Reloaded, Sign
from gateway.config.diagnostics import render
from gateway.json_types import Json

Piece = tuple[str, str]
"""Text, and the style that it has on a terminal: one of `gateway.cli.screen`, or none."""
Line = list[Piece]

LONGEST_ARGUMENTS: Final = 120
_SIGNS: Final = {Sign.ADDED: "green", Sign.CHANGED: "yellow", Sign.REMOVED: "red"}
_TOLD_ELSEWHERE: Final = frozenset({"loaded", "listening", "reloaded", "reload refused", "stopping"})
"""Log lines of which the view tells in its own way."""
_LEVELS: Final = {"error": "red", "critical": "red", "warning": "yellow", "debug": "dim"}
_FRAME: Final = frozenset({"timestamp", "level", "event"})


class Happenings:
    """What is going on, and the lines that say what has happened."""

    def __init__(self, *, tells_problems: bool) -> None:
        """Nothing yet; `tells_problems`: whether lines tell all of what is wrong with the file, or only that it is."""
        self._tells_problems: Final = tells_problems
        self.running: Final[dict[str, tuple[CallBegan, datetime]]] = {}
        """Calls, by id, in the order in which they began."""
        self.glance = Glance(status={}, url=None, problems=())
        self._clients: Counter[str] = Counter()
        self._has_served = False

    def take(self, happening: Happening) -> Iterator[Line]:
        """Take note of it, and say what is to stay on the screen."""
        match happening:
            case CallBegan():
                self.running[happening.id] = (happening, datetime.now(UTC))
            case CallEnded():
                yield from self._ended(happening)
            case Reloaded():
                yield from _reloaded(happening)
            case Glance():
                yield from self._glanced(happening)

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

    def _glanced(self, glance: Glance) -> Iterator[Line]:
        before, self.glance = self.glance, glance
        if glance.url is not None and not self._has_served:
            self._has_served = True
            yield [clock(), ("serving ", ""), (glance.url, "bold")]
        if glance.problems != before.problems:
            yield from _problems(glance, in_full=self._tells_problems)
        clients = Counter(_clients(glance.status))
        yield from (
            [clock(), ("+ ", "green"), (client, ""), (" connected", "dim")] for client in clients - self._clients
        )
        yield from ([clock(), ("- ", "red"), (client, ""), (" left", "dim")] for client in self._clients - clients)
        self._clients = clients


def log_line(line: str) -> Line | None:
    """A line that came out of the process: of the log, or whatever a plugin printed. None if it need not be shown."""
    try:
        entry = json.loads(line)
        event = entry.pop("event")
    except (ValueError, TypeError, KeyError, AttributeError):
        return [(line, "")]
    if event in _TOLD_ELSEWHERE:
        return None
    level = str(entry.get("level", "info"))
    facts = "".join(f"  {key}={_plain(value)}" for key, value in entry.items() if key not in _FRAME)
    return [clock(), (f"{level} ", _LEVELS.get(level, "cyan")), (str(event), ""), (facts, "dim")]


def _reloaded(reloaded: Reloaded) -> Iterator[Line]:
    said = "" if reloaded.changes else ": the same is offered"
    yield [clock(), ("↻ ", "cyan"), (f"generation {reloaded.generation}{said}", "bold")]
    for change in reloaded.changes:
        yield [("           ", ""), (f"{change.sign} {change.place}", _SIGNS[change.sign]), (f"  {change.what}", "dim")]


def _problems(glance: Glance, *, in_full: bool) -> Iterator[Line]:
    if not glance.problems:
        yield [clock(), ("✓ ", "green"), ("the file is right again", "bold")]
        return
    yield [clock(), ("✗ ", "red"), (title_of_problems(glance), "red")]
    for line in render(glance.problems, colour=False).splitlines() if in_full else ():
        yield [(f"           {line}", "")]


def title_of_problems(glance: Glance) -> str:
    """What their being there means."""
    generation = glance.status.get("generation")
    goes_on = "nothing is served until it is right" if generation is None else f"generation {generation} goes on"
    return f"the file cannot be served as it is; {goes_on}"


def _clients(status: Mapping[str, Json]) -> Iterator[str]:
    for entry in status.get("clients", {}).get("sessions", ()):
        if entry["client"] is not None:
            yield from [f"{entry['client']} ({entry['revision']}, {entry['transport']})"] * entry["sessions"]


def clock() -> Piece:
    return datetime.now().astimezone().strftime("%H:%M:%S   "), "dim"


def cut(text: str) -> str:
    return text if len(text) <= LONGEST_ARGUMENTS else text[: LONGEST_ARGUMENTS - 1] + "…"


def shown_seconds(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"


def _spaced(piece: Piece) -> list[Piece]:
    """The piece with room before it; nothing where there is no text."""
    text, style = piece
    return [(f"  {text}", style)] if text else []


def _plain(value: Json) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
