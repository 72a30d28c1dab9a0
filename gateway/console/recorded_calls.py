"""Records the latest calls for the console, up to a number of calls and a total size of their bodies.

To keep calls fast, summaries, details and filters are computed only when a page requests recorded calls.
"""

import time
from collections import deque
from collections.abc import Callable, Mapping
from itertools import chain, islice, takewhile
from typing import Final, Self

import msgspec

from gateway.bounded_map import BoundedMap
from gateway.console.call_rates import CallRates
from gateway.console.call_record import MAX_BODY, CallRecord
from gateway.console.responses import number_of
from gateway.json_types import Json, JsonObject
from gateway.rfc3339 import timestamp
from gateway.telemetry.logs import CALL, title_of
from gateway.telemetry.observer import CallFacts, CallResult
from gateway.wire import jsonrpc

MAX_LISTED: Final = 2000
_DEFAULT_LISTED: Final = 200
_EXACT: Final = ("method", "name", "outcome", "caller", "kind", "view", "revision", "transport", "sessionId")
"""Query parameters that filter calls by the summary member of the same name. Commas separate accepted values."""
_SEARCHED: Final = ("id", "method", "name", "caller", "address", "client", "sessionId", "reason")


class CallFilter(msgspec.Struct, frozen=True, kw_only=True):
    after: int | None = None
    before: int | None = None
    limit: int = _DEFAULT_LISTED
    exact: Mapping[str, frozenset[str]] = {}
    client: str = ""
    """Lower-case text that the name of the client must contain."""
    text: str = ""
    """Lower-case text that the summary of the call must contain."""

    @classmethod
    def parse(cls, query: Mapping[str, str]) -> Self:
        """Parse a query. Raise ValueError with the name of the parameter if a number is malformed."""
        return cls(
            after=_number(query, "after"),
            before=_number(query, "before"),
            limit=min(_number(query, "limit") or _DEFAULT_LISTED, MAX_LISTED),
            exact={name: frozenset(query[name].split(",")) for name in _EXACT if query.get(name)},
            client=query.get("client", "").lower(),
            text=query.get("q", "").lower(),
        )

    def takes(self, record: CallRecord) -> dict[str, Json] | None:
        if (self.after is not None and record.seq <= self.after) or (
            self.before is not None and record.seq >= self.before
        ):
            return None
        shown = record.summary()
        is_wanted = (
            all(shown[name] in values for name, values in self.exact.items())
            and self.client in shown["client"].lower()
            and (not self.text or any(self.text in str(shown[name] or "").lower() for name in _SEARCHED))
        )
        return shown if is_wanted else None


def _number(query: Mapping[str, str], name: str) -> int | None:
    number = number_of(query.get(name))
    if number is None and query.get(name):
        raise ValueError(f"`{name}` must be a non-negative number")
    return number


MAX_CALLS: Final = 2000
MAX_NEW: Final = 100
"""Maximum new calls that `since` returns, because a page cannot show hundreds of calls per second."""
MAX_BYTES: Final = 16 * 2**20
"""Maximum total size of the bodies and log lines of ended calls, in bytes."""
MAX_REFUSALS: Final = 100
_MAX_LINES: Final = 100
_MAX_LOGGED_VALUE: Final = 2000
_MAX_LOG: Final = 16 * 1024
"""Number of logged characters after which a call records no further log lines."""
_MAX_ASKED: Final = 4096
"""Maximum recorded characters of a name or URI. Secrets are masked before the text is shortened for a response."""
_MAX_REMOVED: Final = 10_000
_MAX_SESSIONS: Final = 20_000
_OWN_KEYS: Final = frozenset({CALL, "timestamp"})
_UNRECORDED: Final = frozenset({"ping"})
_UNITS_PER_SECOND: Final = 100_000
_WORKERS: Final = 32
"""A sequence number modulo 32 identifies the worker. Numbers stay below 2**53, the limit of JavaScript, until 2059."""


class RecordedCalls:
    """Keeps running and recently ended calls. Implements `Observer`."""

    def __init__(
        self,
        *,
        worker: int = 0,
        max_calls: int = MAX_CALLS,
        max_bytes: int = MAX_BYTES,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._worker: Final = worker % _WORKERS
        self._clock: Final = clock
        self._last = 0
        self.rates: Final = CallRates()
        self._max_calls: Final = max_calls
        self._max_bytes: Final = max_bytes
        self._running: Final[dict[int, CallRecord]] = {}
        """Running calls, by the id() of their `CallFacts`."""
        self._ended: Final[dict[int, CallRecord]] = {}
        """Ended calls by sequence number, in the order in which the calls ended."""
        self._by_id: Final[dict[str, CallRecord]] = {}
        self._removed: Final[deque[int]] = deque(maxlen=_MAX_REMOVED)
        """The `last_seq` of the latest removed calls, in ascending order."""
        self._bytes = 0
        # The map is bounded, because the end of a session is not always reported.
        self._sessions: Final[BoundedMap[str, tuple[int, str]]] = BoundedMap(_MAX_SESSIONS)
        """The number of calls and the client address of the last call, by session id."""
        self.refusals: Final[deque[CallRecord]] = deque(maxlen=MAX_REFUSALS)

    def began(self, call: CallFacts) -> None:
        if call.method in _UNRECORDED:
            return
        session_id, seq, request = call.session_id, self.next_number(), _encoded(call)
        facts = {
            "seq": seq,
            "id": call.id,
            "at": timestamp(time.time()),
            "method": call.method,
            "kind": call.kind,
            "name": call.name,
            "caller": call.caller.principal,
            "address": call.caller.address,
            "client": title_of(call.terms.client_info),
            "era": call.era.value,
            "revision": call.revision,
            "transport": call.caller.binding,
            "view": call.caller.view,
        }
        record = CallRecord(
            seq=seq,
            call=call,
            facts=facts,
            asked=None if call.name is not None else _asked(call.params),
            session_id=session_id,
            redactor=call.catalog.redactor,
            request=request[:MAX_BODY],
            request_size=len(request),
        )
        self._running[id(call)] = self._by_id[call.id] = record
        if session_id is not None:
            self._sessions.put(session_id, (self.use_of(session_id)[0] + 1, call.caller.address))

    def ended(self, call: CallFacts, ending: CallResult) -> None:
        record = self._running.pop(id(call), None)
        if record is None:
            return
        record.end(ending, seq=self.next_number())
        if call.kind:
            self.rates.add(ending.seconds, outcome=ending.outcome)
        # Keep refused calls separately, so that other calls do not displace them.
        if ending.limit is not None:
            self.refusals.append(record)
        self._keep(record)

    def heard(self, line: Mapping[str, Json]) -> None:
        """Add a log line to the record of its call. Any thread can call this method."""
        # A dict lookup is thread-safe.
        record = self._by_id.get(line.get(CALL, ""))
        if record is None:
            return
        if len(record.log or ()) < _MAX_LINES and record.log_size < _MAX_LOG:
            facts = {name: _bounded(value) for name, value in line.items() if name not in _OWN_KEYS}
            record.add_line({"at": line.get("timestamp"), **facts})

    def listed(self, wanted: CallFilter) -> JsonObject:
        """Return the latest matching calls. With `wanted.after`, return the first matching calls after this number.

        The calls are ordered from oldest to newest.
        """
        records = sorted(chain(self._ended.values(), self._running.values()), key=lambda record: record.seq)
        is_forward = wanted.after is not None
        found = (wanted.takes(record) for record in (records if is_forward else reversed(records)))
        calls = list(islice((summary for summary in found if summary is not None), wanted.limit))
        return {
            "calls": calls if is_forward else calls[::-1],
            "oldest": records[0].seq if records else None,
            "newest": records[-1].seq if records else None,
        }

    def find(self, seq: int) -> CallRecord | None:
        found = self._ended.get(seq)
        return found or next((record for record in self._running.values() if record.seq == seq), None)

    def next_number(self) -> int:
        """Return a new sequence number, which is greater than all earlier numbers of this worker."""
        self._last = max(self._last + 1, int(self._clock() * _UNITS_PER_SECOND))
        return self._last * _WORKERS + self._worker

    def since(self, number: int) -> JsonObject:
        """Return the calls that started or ended after `number`, and the number of calls that were skipped."""
        records = chain(self._ended.values(), self._running.values())
        found = sorted((record for record in records if record.last_seq > number), key=lambda record: record.last_seq)
        # Include all ends of earlier calls, because a page would otherwise show these calls as running forever.
        ended = [record for record in found if record.seq <= number]
        began = [record for record in found if record.seq > number]
        shown = [*ended, *began[-MAX_NEW:]]
        removed = sum(1 for _ in takewhile(lambda seq: seq > number, reversed(self._removed)))
        return {"calls": [record.summary() for record in shown], "skipped": len(found) - len(shown) + removed}

    @property
    def running(self) -> list[CallRecord]:
        return [*self._running.values()]

    def use_of(self, session_id: str) -> tuple[int, str]:
        return self._sessions.get(session_id) or (0, "")

    def session_ended(self, session_id: str) -> None:
        self._sessions.discard(session_id)

    def refused(self) -> list[JsonObject]:
        return [
            {
                "at": call["at"],
                "caller": call["caller"] or call["address"] or None,
                "what": " ".join(filter(None, (call["method"], call["name"]))),
                "limit": record.limit,
            }
            for record in self.refusals
            for call in [record.summary()]
        ]

    def _keep(self, record: CallRecord) -> None:
        self._ended[record.seq] = record
        self._bytes += record.count_bytes()
        # Remove the calls that ended first, because a long call would otherwise be removed right after its end.
        while len(self._ended) > self._max_calls or self._bytes > self._max_bytes:
            oldest = self._ended.pop(next(iter(self._ended)))
            self._bytes -= oldest.counted
            self._removed.append(oldest.last_seq)
            if self._by_id.get(oldest.facts["id"]) is oldest:
                del self._by_id[oldest.facts["id"]]


def _asked(params: JsonObject) -> str | None:
    found = params.get("name") or params.get("uri")
    return found[:_MAX_ASKED] if isinstance(found, str) else None


def _encoded(call: CallFacts) -> bytes:
    return jsonrpc.encode(
        {"jsonrpc": jsonrpc.VERSION, "id": call.request_id, "method": call.method, "params": call.described_params}
    )


def _bounded(value: Json) -> Json:
    if value is None or isinstance(value, bool | int | float):
        return value
    text = value if isinstance(value, str) else str(value)
    return text if len(text) <= _MAX_LOGGED_VALUE else f"{text[:_MAX_LOGGED_VALUE]}…"
