"""The W3C Trace Context of a call, and the interface through which executors report steps.

`traceparent` identifies the parent span. `tracestate` is opaque data of tracing systems. A malformed context is ignored
(§4.3). Executors do not know whether spans are recorded.
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

# §3.2.2: version ff and all-zero ids are invalid.
_PARENT: Final = re.compile(
    "(?!ff)[0-9a-f]{2}-(?P<trace>(?!0{32})[0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(?P<more>-[!-~]{0,200})?"
)
"""The format of `traceparent` (§3.2). Only versions after 00 can contain data after the flags."""
_STATE: Final = re.compile("[ -~]{1,512}")
"""The accepted `tracestate`: up to 512 characters (§3.3.1.5), without characters that could end a header."""


class TraceContext(msgspec.Struct, frozen=True, kw_only=True):
    """The W3C trace context of a message: the parent span, and the vendors' trace state."""

    parent: str
    state: str | None = None

    @property
    def trace_id(self) -> str:
        return self.parent.split("-")[1]

    @property
    def fields(self) -> Mapping[str, str]:
        parent = {TRACEPARENT: self.parent}
        return parent if self.state is None else {**parent, TRACESTATE: self.state}


def read_trace(carrier: Mapping[str, Json]) -> TraceContext | None:
    """Return the trace context in headers or in `_meta`, or None if the context is missing or malformed."""
    parent = carrier.get(TRACEPARENT)
    if parent is None:
        return None
    match = _PARENT.fullmatch(parent) if isinstance(parent, str) else None
    if match is None or (match["more"] is not None and match[0].startswith("00")):
        return None
    state = carrier.get(TRACESTATE)
    return TraceContext(parent=match[0], state=state if isinstance(state, str) and _STATE.fullmatch(state) else None)


class TracedStep(Protocol):
    @property
    def context(self) -> TraceContext | None:
        """The trace context to send to the process that executes the step."""

    def note(self, name: str, value: str | int) -> None:
        """Add an attribute to the span. The value must not contain caller data or secrets."""

    def fail(self, why: str) -> None:
        """Mark the step as failed. `why` is one of a few fixed words."""


class Trace(Protocol):
    def step(
        self, name: str, *, kind: Literal["client", "internal"], facts: Mapping[str, str | int]
    ) -> AbstractContextManager[TracedStep]:
        """Start a step, which ends with the `with` block. The kind is `client` if another process executes the step."""


class Untraced(msgspec.Struct, frozen=True):
    """A trace without spans, which only propagates its context."""

    context: TraceContext | None = None

    def step(self, name: str, *, kind: Literal["client", "internal"], facts: Mapping[str, str | int]) -> Self:  # noqa: ARG002 - not recorded
        return self

    def note(self, name: str, value: str | int) -> None: ...

    def fail(self, why: str) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


UNTRACED: Final = Untraced()
CURRENT: Final[ContextVar[Trace]] = ContextVar("trace", default=UNTRACED)
"""The trace of the call that is running plugin code. The shared HTTP client propagates this trace."""


def untraced(context: TraceContext | None) -> Untraced:
    return UNTRACED if context is None else Untraced(context)
