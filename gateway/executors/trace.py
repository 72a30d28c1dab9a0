"""Where a call stands in its caller's trace, and how that is handed on to whoever does part of the work.

W3C Trace Context: `traceparent` says which span the work belongs to, `tracestate` is for the tracing systems alone.
What is malformed is as good as absent (§4.3: a trace is then begun anew). Whether spans are recorded, executors do not
know.
"""

import re
from collections.abc import Mapping
from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Literal, Protocol, Self

from gateway.json_types import Json

TRACEPARENT: Final = "traceparent"
TRACESTATE: Final = "tracestate"

_PARENT: Final = re.compile(
    "(?!ff)[0-9a-f]{2}-(?P<trace>(?!0{32})[0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(?P<more>-[!-~]{0,200})?"
)
"""§3.2. Later versions may have more behind the flags; version 00 has not."""
_STATE: Final = re.compile("[ -~]{1,512}")
"""§3.3.1.5: at least 512 characters are propagated. A header field's value, so nothing that could end one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceContext:
    """The span that work is done for, as it travels."""

    parent: str
    state: str | None = None

    @property
    def trace_id(self) -> str:
        return self.parent.split("-")[1]

    @property
    def fields(self) -> Mapping[str, str]:
        """As header fields."""
        parent = {TRACEPARENT: self.parent}
        return parent if self.state is None else {**parent, TRACESTATE: self.state}


def read_trace(carrier: Mapping[str, Json]) -> TraceContext | None:
    """Return what header fields, or a request's `_meta`, say of the trace that a request belongs to."""
    parent = carrier.get(TRACEPARENT)
    if parent is None:
        return None
    match = _PARENT.fullmatch(parent) if isinstance(parent, str) else None
    if match is None or (match["more"] is not None and match[0].startswith("00")):
        return None
    state = carrier.get(TRACESTATE)
    return TraceContext(parent=match[0], state=state if isinstance(state, str) and _STATE.fullmatch(state) else None)


class Step(Protocol):
    """Part of a call's work that a trace shows by itself."""

    @property
    def context(self) -> TraceContext | None:
        """What to hand on to whoever does this part."""

    def note(self, name: str, value: str | int) -> None:
        """Add a fact; nothing that a caller sent, and no secret."""

    def fail(self, why: str) -> None:
        """Say that it failed, by one of few words."""


class Trace(Protocol):
    """A call's place in a trace."""

    def step(
        self, name: str, *, kind: Literal["client", "internal"], facts: Mapping[str, str | int]
    ) -> AbstractContextManager[Step]:
        """A part of the work, while the context lasts. `client`: somebody else does it."""


@dataclass(frozen=True, slots=True)
class Untraced:
    """A call of which nothing is recorded here: its context is handed on as it came."""

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
"""Of the call that an author's code is at work for: the shared client is not told."""


def untraced(context: TraceContext | None) -> Untraced:
    """Return the place of a call whose request came with that, where nothing is recorded."""
    return UNTRACED if context is None else Untraced(context)
