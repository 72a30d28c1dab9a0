"""The record of one call, and its representations in the API.

Bodies are kept as JSON text, truncated to a maximum length, and masked only when a page requests the record.

Threat handled here: masking cannot recognise a secret that truncation has split, so the end of the body is removed.
"""

from collections.abc import Sequence
from typing import Final

import msgspec
import orjson

from gateway import exact_json
from gateway.config.secrets.redactor import Redactor
from gateway.console.responses import MAX_DEPTH, milliseconds, short_id
from gateway.json_types import Json, JsonObject
from gateway.rfc3339 import timestamp
from gateway.telemetry.observer import CallFacts, CallResult, Outcome, ProgressReport, Wait
from gateway.telemetry.trace import TraceContext
from gateway.wire.jsonrpc import is_deeper

MAX_BODY: Final = 64 * 1024

RUNNING: Final = "running"
NOT_SHOWN: Final = "(too deeply nested to show, or with a number that is too long)"
_MAX_NAME: Final = 200
_MAX_REASON: Final = 300


class CallRecord(msgspec.Struct, kw_only=True, eq=False):
    seq: int
    call: CallFacts | None
    """The data of the call while it runs, or None after the call has ended."""
    facts: JsonObject
    """The members of the summary that do not change during the call. The member `client` is not masked yet."""
    asked: str | None
    """The name or URI in the request, if it is not in the caller's catalog. Otherwise None."""
    session_id: str | None
    redactor: Redactor
    request: bytes
    """The first `MAX_BODY` bytes of the request."""
    request_size: int
    """Size of the request before truncation, in bytes."""
    trace: TraceContext | None = None
    outcome: Outcome | None = None
    limit: str = ""
    reason: str = ""
    """The masked error message of a failed call."""
    ended_seq: int = 0
    """The sequence number of the end of the call, or 0 while the call runs."""
    seconds: float | None = None
    response: bytes | None = None
    response_size: int | None = None
    waits: Sequence[Wait] = ()
    reports: Sequence[ProgressReport] = ()
    log: list[JsonObject] | None = None
    """The first log lines of the call, with secrets masked."""
    log_size: int = 0
    counted: int = 0
    """The size in bytes that `count_bytes` last returned. Later log lines are not included."""

    @property
    def last_seq(self) -> int:
        """The sequence number of the last change."""
        return max(self.seq, self.ended_seq)

    def end(self, ending: CallResult, *, seq: int) -> None:
        """Record the end of the call, and release the data of the call."""
        if self.call is not None:
            self.trace, self.waits, self.reports = self.call.trace, self.call.waits, self.call.reports
        self.call = None
        self.outcome, self.seconds, self.limit = ending.outcome, ending.seconds, ending.limit or ""
        # Masking the message of a large error would take too long. The call details contain the message.
        if ending.response is None or len(ending.response) <= MAX_BODY:
            self.reason = self.redactor.text(ending.reason)[:_MAX_REASON]
        self.ended_seq = seq
        if ending.response is not None:
            self.response, self.response_size = ending.response[:MAX_BODY], len(ending.response)

    def add_line(self, line: JsonObject) -> None:
        if self.log is None:
            self.log = []
        self.log.append(line)
        self.log_size += sum(len(str(value)) for value in line.values())

    def count_bytes(self) -> int:
        self.counted = self.log_size + len(self.request) + len(self.response or b"")
        return self.counted

    def summary(self) -> dict[str, Json]:
        name = None if self.asked is None else self.redactor.text(self.asked)[:_MAX_NAME]
        return {
            **self.facts,
            "name": self.facts["name"] or name,
            "client": self.redactor.text(self.facts["client"]),
            "ms": milliseconds(self.seconds),
            "outcome": RUNNING if self.outcome is None else self.outcome.value,
            "reason": self.reason or None,
            "requestBytes": self.request_size,
            "responseBytes": self.response_size,
            "sessionId": None if self.session_id is None else short_id(self.session_id),
        }

    def detail(self) -> dict[str, Json]:
        found, response = self.call or self, self.response
        is_request_cut = self.request_size > MAX_BODY
        is_response_cut = self.response_size is not None and self.response_size > MAX_BODY
        return {
            **self.summary(),
            "request": shown_body(self.request, self.redactor, is_cut=is_request_cut),
            "requestTruncated": is_request_cut,
            "response": None if response is None else shown_body(response, self.redactor, is_cut=is_response_cut),
            "responseTruncated": is_response_cut,
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


def shown_body(text: bytes, redactor: Redactor, *, is_cut: bool) -> Json:
    """Return the masked value of a body, or the masked start of the JSON text of a truncated body.

    Return a note instead of a value that JSON libraries cannot parse or encode.
    """
    if is_cut:
        # The margin of `before_gap` covers JSON within JSON. The body adds another level, and thus longer escapes.
        return redactor.before_gap(redactor.before_gap(redactor.text(text.decode(errors="ignore"))))
    try:
        value = exact_json.loads(text)
    except orjson.JSONDecodeError:
        return NOT_SHOWN
    return NOT_SHOWN if is_deeper(value, MAX_DEPTH) else redactor.json(value)
