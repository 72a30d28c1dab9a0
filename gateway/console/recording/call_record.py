"""The record of one call, and its forms in the API.

Of bodies the JSON text is kept, of a large one the beginning. It is masked when somebody asks for it, which costs calls
nothing.

Threat answered here: a secret that is cut where a body was cut would not be found; as much as could be one is left out.
Secrets are looked for in strings rather than in JSON text, where a quotation mark or a line break looks different.
"""

import json
import re
from collections.abc import Sequence
from typing import Final

import msgspec
import orjson

from gateway import exact_json
from gateway.config.models.interpolated_text import MASK
from gateway.config.secrets.redactor import Redactor
from gateway.console.json_forms import milliseconds, short_id
from gateway.json_types import Json, JsonObject
from gateway.rfc3339 import timestamp
from gateway.telemetry.observer import CallFacts, CallResult, Outcome, ProgressReport, Wait
from gateway.telemetry.trace import TraceContext

MAX_BODY: Final = 64 * 1024
"""Bytes of a body that are kept."""

# `*+` gives back nothing that it has matched: no body can make the search slow.
_TOKEN: Final = re.compile(r'"(?P<text>[^"\\]*+(?:\\.[^"\\]*+)*+)(?P<end>"?)|-?[0-9][0-9.eE+-]*+', re.DOTALL)
"""A string of JSON, which the end of the text may cut, or a number."""
_TORN_ESCAPE: Final = re.compile(r"(?:\\u[dD][89abAB][0-9a-fA-F]{2})?(?:\\(?:u[0-9a-fA-F]{0,3})?)?\Z")
"""An escape that was cut, and half of a surrogate pair."""

RUNNING: Final = "running"
_MAX_NAME: Final = 200
"""Characters of a name that the caller has made up."""


# gc=False: it refers to nothing, and thousands of them need not be looked at by each collection.
class Body(msgspec.Struct, frozen=True, gc=False):
    """A body, or its beginning."""

    text: bytes
    size: int
    """Bytes of the whole."""

    @property
    def is_truncated(self) -> bool:
        return self.size > len(self.text)

    def shown(self, redactor: Redactor) -> Json:
        """Return it masked: as a value, or as the beginning of its JSON text if it was cut."""
        if self.is_truncated:
            return _masked_beginning(self.text.decode(errors="ignore"), redactor)
        try:
            return redactor.json(exact_json.loads(self.text))
        except orjson.JSONDecodeError:  # nested deeper than it can be read exactly
            return _masked_beginning(self.text.decode(errors="replace"), redactor)


class CallRecord(msgspec.Struct, kw_only=True, eq=False):
    """One call, while it runs and afterwards."""

    seq: int
    call: CallFacts | None
    """While it runs; what it holds is not held afterwards."""
    id: str
    at: float
    """Unix time."""
    method: str
    kind: str
    name: str | None
    asked: str | None
    """The name or URI in its parameters, of a primitive that the caller's catalog has not."""
    principal: str | None
    address: str
    title: str
    """The client's."""
    era: str
    revision: str
    transport: str
    view: str | None
    session_id: str | None
    redactor: Redactor
    request: Body
    trace: TraceContext | None = None
    outcome: Outcome | None = None
    limit: str = ""
    ended_seq: int = 0
    """The number of its end; 0 while it runs."""
    seconds: float | None = None
    response: Body | None = None
    waits: Sequence[Wait] = ()
    reported: Sequence[ProgressReport] = ()
    log: list[JsonObject] | None = None
    """The first lines of it in the log, masked."""
    log_size: int = 0
    """Characters of them."""
    counted: int = 0
    """Bytes of it that count against the bound; lines of the log may come later."""
    is_left_out: bool = False
    """Whether event streams have not told of it."""

    def end(self, ending: CallResult, *, seq: int, response: Body | None) -> None:
        """Note its end, and hold no longer what it held."""
        if self.call is not None:
            activity = self.call.activity
            self.trace, self.waits, self.reported = self.call.trace, activity.waits, activity.reports
        self.call = None
        self.outcome, self.seconds, self.limit = ending.outcome, ending.seconds, ending.limit
        self.ended_seq, self.response = seq, response

    def add_line(self, line: JsonObject) -> None:
        """Add a line of the log."""
        if self.log is None:
            self.log = []
        self.log.append(line)
        self.log_size += sum(len(str(value)) for value in line.values())

    def leave_out(self) -> None:
        """Note that event streams do not contain the call."""
        self.is_left_out = True

    def count_bytes(self) -> int:
        """Return the size now; `counted` keeps it."""
        self.counted = self.kept_bytes
        return self.counted

    @property
    def kept_bytes(self) -> int:
        return self.log_size + len(self.request.text) + (0 if self.response is None else len(self.response.text))

    @property
    def state(self) -> str:
        return RUNNING if self.outcome is None else self.outcome.value

    @property
    def shown_name(self) -> str | None:
        if self.name is not None:
            return self.name
        return None if self.asked is None else self.redactor.text(self.asked)[:_MAX_NAME]

    @property
    def client(self) -> str:
        return self.redactor.text(self.title)

    def summary(self) -> dict[str, Json]:
        """`Call` of the API."""
        return {
            "seq": self.seq,
            "id": self.id,
            "at": timestamp(self.at),
            "ms": milliseconds(self.seconds),
            "method": self.method,
            "kind": self.kind,
            "name": self.shown_name,
            "caller": self.principal,
            "address": self.address,
            "client": self.client,
            "era": self.era,
            "revision": self.revision,
            "transport": self.transport,
            "outcome": self.state,
            "requestBytes": self.request.size,
            "responseBytes": None if self.response is None else self.response.size,
            "view": self.view,
            "sessionId": None if self.session_id is None else short_id(self.session_id),
        }

    def detail(self) -> dict[str, Json]:
        """`Call` with all that is known of it."""
        running, trace = self.call, self.trace
        waits, reported = self.waits, self.reported
        if running is not None:
            trace, waits, reported = running.trace, running.activity.waits, running.activity.reports
        response = self.response
        return {
            **self.summary(),
            "request": self.request.shown(self.redactor),
            "requestTruncated": self.request.is_truncated,
            "response": None if response is None else response.shown(self.redactor),
            "responseTruncated": response is not None and response.is_truncated,
            "log": list(self.log or ()),
            "traceId": None if trace is None else trace.trace_id,
            "waits": [{"for": each.cause, "ms": milliseconds(each.seconds)} for each in waits],
            "progress": [
                {
                    "at": timestamp(each.at),
                    "progress": each.progress,
                    "total": each.total,
                    "message": None if each.message is None else self.redactor.text(each.message),
                }
                for each in reported
            ],
            "limit": self.limit or None,
        }


def kept(text: bytes) -> Body:
    """Return as much of a body as is kept."""
    return Body(text if len(text) <= MAX_BODY else text[:MAX_BODY], len(text))


def _masked_beginning(text: str, redactor: Redactor) -> str:
    # String by string: a secret with a quotation mark or a line break looks different in JSON text.
    def masked(match: re.Match[str]) -> str:
        if match["text"] is None:
            is_torn = match.end() == len(text)
            return MASK if is_torn or redactor.finds(match[0]) else match[0]
        if match["end"]:
            return _written(redactor.text(_read(match["text"])))
        # Half an escape would be no JSON, and would hide the beginning of a secret before it.
        torn = _read(_TORN_ESCAPE.sub("", match["text"]))
        return _written(redactor.before_gap(redactor.text(torn)))[:-1]

    return _TOKEN.sub(masked, text)


def _read(token: str) -> str:
    try:
        found = json.loads(f'"{token}"', strict=False)
    except ValueError:
        return ""
    return found if isinstance(found, str) else ""


def _written(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
