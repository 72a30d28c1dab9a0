"""Who uses the daemon: clients with a session, and those of the modern era, which have none, by their latest calls."""

import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from gateway.json_types import Json, JsonObject
from gateway.protocol.calls import Call, Ending
from gateway.protocol.exchange import Binding
from gateway.protocol.session import Session
from gateway.protocol.versions import Era

MOST: Final = 20
"""Kinds of clients that are told apart; the rest is counted together."""
RECENT_SECONDS: Final = 600.0
_REMEMBERED: Final = 200
_LONGEST: Final = 60
"""Characters of what a client calls itself, which is whatever it likes."""

Kind = tuple[Era, str, Binding, str]
"""Era, revision, transport, and what the client calls itself."""


class RecentClients:
    """Remembers which modern clients have called of late. An observer of calls."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock: Final = clock
        self._calls: Final[OrderedDict[Kind, tuple[float, int]]] = OrderedDict()

    def began(self, call: Call) -> None:
        request = call.request
        if request.session is not None:
            return
        kind = (Era.MODERN, request.revision, request.exchange.caller.binding, title_of(request.client_info))
        _, calls = self._calls.get(kind, (0.0, 0))
        self._calls[kind] = (self._clock(), calls + 1)
        self._calls.move_to_end(kind)
        if len(self._calls) > _REMEMBERED:
            self._calls.popitem(last=False)

    def ended(self, call: Call, ending: Ending) -> None:
        """Nothing: that it called is what counts."""

    def calls(self) -> dict[Kind, int]:
        """Calls of each kind of client that has called of late, since it was first seen."""
        oldest = self._clock() - RECENT_SECONDS
        while self._calls and next(iter(self._calls.values()))[0] < oldest:
            self._calls.popitem(last=False)
        return {kind: calls for kind, (_, calls) in self._calls.items()}


def with_sessions(sessions: Iterable[tuple[Binding, Session]]) -> dict[Kind, int]:
    """Sessions of each kind of client."""
    return Counter(
        (Era.LEGACY, session.revision, binding, title_of(session.client_info)) for binding, session in sessions
    )


def listed(kinds: dict[Kind, int], *, counted: str) -> list[Json]:
    """Kinds of clients, those with most first; what is beyond `MOST` in one entry without a name."""
    ranked = sorted(kinds.items(), key=lambda item: -item[1])
    return [*map(_entry, ranked[:MOST], [counted] * MOST), *_others(ranked[MOST:], counted)]


def _entry(ranked: tuple[Kind, int], counted: str) -> JsonObject:
    (era, revision, transport, client), count = ranked
    return {"client": client, "era": era.value, "revision": revision, "transport": transport.value, counted: count}


def _others(ranked: list[tuple[Kind, int]], counted: str) -> Iterator[JsonObject]:
    if ranked:
        yield {"client": None, "kinds": len(ranked), counted: sum(count for _, count in ranked)}


def title_of(client_info: JsonObject) -> str:
    """Name and version, as the client gives them."""
    parts = [part for part in (client_info.get("name"), client_info.get("version")) if isinstance(part, str)]
    return " ".join(parts)[:_LONGEST] or "unnamed"
