"""Counts legacy clients by their sessions, and modern clients by their recent calls."""

import math
import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final

from gateway.json_types import Json
from gateway.protocol.exchange import Binding
from gateway.protocol.session import Session
from gateway.telemetry.observer import CallFacts, CallResult
from gateway.wire.meta import title_of
from gateway.wire.revisions import Era

MAX_CLIENTS: Final = 20
"""Kinds of clients that are listed one by one."""
RECENT_SECONDS: Final = 600.0
_REMEMBERED: Final = 200

_NEVER: Final = (0, -math.inf)

Kind = tuple[Era, str, str, str]
"""Era, revision, transport, and the name from the client."""


class RecentClients:
    """Counts the recent calls of modern clients. An observer of calls."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock: Final = clock
        self._calls: Final[dict[tuple[str, str, str], tuple[int, float]]] = {}
        """Number of calls and time of the last, by revision, transport and name. Least recent client first."""

    def began(self, call: CallFacts) -> None:
        # Legacy clients are counted by their sessions.
        if call.session_id is not None:
            return
        client, now = (call.revision, call.caller.binding, title_of(call.terms.client_info)), self._clock()
        calls, last = self._calls.pop(client, _NEVER)
        self._calls[client] = (calls + 1 if now - last < RECENT_SECONDS else 1), now
        if len(self._calls) > _REMEMBERED:
            # Clients choose their names, which must not fill the memory.
            del self._calls[next(iter(self._calls))]

    def ended(self, call: CallFacts, ending: CallResult) -> None:
        """Do nothing: calls are counted when they begin."""

    def calls(self) -> dict[Kind, int]:
        """Return the calls of each kind of client that has called within `RECENT_SECONDS`."""
        since = self._clock() - RECENT_SECONDS
        return {(Era.MODERN, *client): calls for client, (calls, last) in self._calls.items() if last > since}


def with_sessions(sessions: Iterable[tuple[Binding, Session]]) -> dict[Kind, int]:
    """Return the sessions of each kind of client."""
    return Counter(
        (Era.LEGACY, session.revision, binding, title_of(session.client_info)) for binding, session in sessions
    )


def listed(kinds: dict[Kind, int], *, counted: str) -> list[Json]:
    """Return kinds of clients by descending count. One entry without a name combines those beyond `MAX_CLIENTS`."""
    ranked = sorted(kinds.items(), key=lambda item: -item[1])
    entries: list[Json] = [
        {"client": client, "era": era.value, "revision": revision, "transport": str(transport), counted: count}
        for (era, revision, transport, client), count in ranked[:MAX_CLIENTS]
    ]
    if others := ranked[MAX_CLIENTS:]:
        entries.append({"client": None, "kinds": len(others), counted: sum(count for _, count in others)})
    return entries
