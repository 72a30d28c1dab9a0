"""The record of one call, and the formats of the record in the API.

Bodies are kept as JSON text, truncated to a maximum length, and masked only when a page requests the record.

Threat handled here: masking cannot recognise a secret that truncation has split, so the end of the body is removed.
"""

from collections.abc import Sequence
from typing import Final

import msgspec
import orjson

from gateway import exact_json
from gateway.config.secrets.redactor import Redactor
from gateway.console.responses import milliseconds, short_id
from gateway.json_types import Json, JsonObject
from gateway.rfc3339 import timestamp
from gateway.telemetry.observer import CallFacts, CallResult, Outcome, ProgressReport, Wait
from gateway.telemetry.trace import TraceContext

MAX_BODY: Final = 64 * 1024

RUNNING: Final = "running"
_MAX_NAME: Final = 200
_MAX_REASON: Final = 300


# With gc=False, the garbage collector skips bodies, which contain no references. There can be thousands of bodies.
class Body(msgspec.Struct, frozen=True, gc=False):
    text: bytes
    size: int
    """Size of the body before truncation, in bytes."""

    @property
    def is_truncated(self) -> bool:
        return self.size > len(self.text)

    def shown(self, redactor: Redactor) -> Json:
        """Return the masked value of the body, or the masked start of its JSON text if the body is truncated."""
        if self.is_truncated:
            return redactor.before_gap(redactor.text(self.text.decode(errors="ignore")))
        try:
            return redactor.json(exact_json.loads(self.text))
        except orjson.JSONDecodeError:  # too deeply nested to parse
            return redactor.text(self.text.decode(errors="replace"))


class CallRecord(msgspec.Struct, kw_only=True, eq=False):
    seq: int
    call: CallFacts | None
    """The data of the call while it runs, or None after the call has ended."""
    facts: JsonObject
    """The members of the summary that do not change during the call. The member `client` is not masked yet."""
    asked: str | None
    """The requested name or URI if the caller's catalog has no such primitive."""
    session_id: str | None
    redactor: Redactor
    request: Body
    trace: TraceContext | None = None
    outcome: Outcome | None = None
    limit: str = ""
    reason: str = ""
    """The masked error message of a failed call."""
    ended_seq: int = 0
    """The sequence number of the end of the call, or 0 while the call runs."""
    seconds: float | None = None
    response: Body | None = None
    waits: Sequence[Wait] = ()
    reports: Sequence[ProgressReport] = ()
    log: list[JsonObject] | None = None
    """The first log lines of the call, with secrets masked."""
    log_size: int = 0
    counted: int = 0
    """The size in bytes that `count_bytes` last returned. Later log lines can increase the actual size."""
    is_left_out: bool = False

    def end(self, ending: CallResult, *, seq: int, response: Body | None) -> None:
        """Record the end of the call, and release the data of the call."""
        if self.call is not None:
            self.trace, self.waits, self.reports = self.call.trace, self.call.waits, self.call.reports
        self.call = None
        self.outcome, self.seconds, self.limit = ending.outcome, ending.seconds, ending.limit or ""
        # Masking the message of a large error would take too long. The call details contain the message.
        if ending.response is None or len(ending.response) <= MAX_BODY:
            self.reason = self.redactor.text(ending.reason)[:_MAX_REASON]
        self.ended_seq, self.response = seq, response

    def add_line(self, line: JsonObject) -> None:
        if self.log is None:
            self.log = []
        self.log.append(line)
        self.log_size += sum(len(str(value)) for value in line.values())

    def leave_out(self) -> None:
        self.is_left_out = True

    def count_bytes(self) -> int:
        self.counted = self.kept_bytes
        return self.counted

    @property
    def kept_bytes(self) -> int:
        return self.log_size + len(self.request.text) + (0 if self.response is None else len(self.response.text))

    def summary(self) -> dict[str, Json]:
        name = None if self.asked is None else self.redactor.text(self.asked)[:_MAX_NAME]
        return {
            **self.facts,
            "name": self.facts["name"] or name,
            "client": self.redactor.text(self.facts["client"]),
            "ms": milliseconds(self.seconds),
            "outcome": RUNNING if self.outcome is None else self.outcome.value,
            "reason": self.reason or None,
            "requestBytes": self.request.size,
            "responseBytes": None if self.response is None else self.response.size,
            "sessionId": None if self.session_id is None else short_id(self.session_id),
        }

    def detail(self) -> dict[str, Json]:
        found, response = self.call or self, self.response
        return {
            **self.summary(),
            "request": self.request.shown(self.redactor),
            "requestTruncated": self.request.is_truncated,
            "response": None if response is None else response.shown(self.redactor),
            "responseTruncated": response is not None and response.is_truncated,
            "log": list(self.log or ()),
            "traceId": None if found.trace is None else found.trace.trace_id,
            "waits": [{"for": each.cause, "ms": milliseconds(each.seconds)} for each in found.waits],
            "progress": [
                {
                    "at": timestamp(each.at),
                    "progress": each.progress,
                    "total": each.total,
                    "message": None if each.message is None else self.redactor.text(each.message),
                }
                for each in found.reports
            ],
            "limit": self.limit or None,
        }


def kept(text: bytes) -> Body:
    return Body(text if len(text) <= MAX_BODY else text[:MAX_BODY], len(text))
