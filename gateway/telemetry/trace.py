"""Trace context of a call (W3C Trace Context), and the interface through which executors report parts of its work.

`traceparent` names the span that the work belongs to, and `tracestate` is for the tracing systems alone. A malformed
context counts as absent (§4.3: a new trace is begun). Executors do not know whether spans are recorded.
"""

import re
from collections.abc import Mapping
from contextlib import AbstractContextManager
from contextvars import ContextVar
from types import TracebackType
from typing import Final, Literal, Protocol, Self

import msgspec

from gateway.json_types import Json

TRACEPARENT: Final = "traceparent"
TRACESTATE: Final = "tracestate"

# §3.2.2: version ff, and ids that are all zeros, are invalid.
_PARENT: Final = re.compile(
    "(?!ff)[0-9a-f]{2}-(?P<trace>(?!0{32})[0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(?P<more>-[!-~]{0,200})?"
)
"""§3.2. Later versions may have more behind the flags; version 00 has not."""
_STATE: Final = re.compile("[ -~]{1,512}")
"""§3.3.1.5: at least 512 characters are propagated. A header field's value, so nothing that could end one."""


class TraceContext(msgspec.Struct, frozen=True, kw_only=True):
    """A span as it is passed from one process to another."""

    parent: str
    state: str | None = None

    @property
    def trace_id(self) -> str:
        return self.parent.split("-")[1]

    @property
    def fields(self) -> Mapping[str, str]:
        """The context as header fields."""
        parent = {TRACEPARENT: self.parent}
        return parent if self.state is None else {**parent, TRACESTATE: self.state}


def read_trace(carrier: Mapping[str, Json]) -> TraceContext | None:
    """Return the trace context in header fields, or in a request's `_meta`; None if there is none."""
    parent = carrier.get(TRACEPARENT)
    if parent is None:
        return None
    match = _PARENT.fullmatch(parent) if isinstance(parent, str) else None
    if match is None or (match["more"] is not None and match[0].startswith("00")):
        return None
    state = carrier.get(TRACESTATE)
    return TraceContext(parent=match[0], state=state if isinstance(state, str) and _STATE.fullmatch(state) else None)


class TracedStep(Protocol):
    """A part of a call's work that is a span of its own."""

    @property
    def context(self) -> TraceContext | None:
        """The context to pass on to the process that does this part."""

    def note(self, name: str, value: str | int) -> None:
        """Add an attribute; nothing that a caller sent, and no secret."""

    def fail(self, why: str) -> None:
        """Mark the part as failed, with one of few words."""


class Trace(Protocol):
    """The trace of a call."""

    def step(
        self, name: str, *, kind: Literal["client", "internal"], facts: Mapping[str, str | int]
    ) -> AbstractContextManager[TracedStep]:
        """Begin a part of the work, which ends with the `with` block. `client`: another process does it."""


class Untraced(msgspec.Struct, frozen=True):
    """The trace of a call without spans: its context is passed on as it came."""

    context: TraceContext | None = None

    def step(self, name: str, *, kind: Literal["client", "internal"], facts: Mapping[str, str | int]) -> Self:  # noqa: ARG002 - not recorded
        return self

    def note(self, name: str, value: str | int) -> None:
        """Not recorded."""

    def fail(self, why: str) -> None:
        """Not recorded."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing was opened."""


UNTRACED: Final = Untraced()
CURRENT: Final[ContextVar[Trace]] = ContextVar("trace", default=UNTRACED)
"""The trace of the call that an author's code runs for, because the shared HTTP client is not passed one."""


def untraced(context: TraceContext | None) -> Untraced:
    """Return the trace of a call without spans."""
    return UNTRACED if context is None else Untraced(context)
