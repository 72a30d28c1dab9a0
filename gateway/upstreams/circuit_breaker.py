"""Decides when an upstream may be tried, and remembers what went wrong with it.

A connection that fails is tried again after 1 s, 2 s … 60 s, with jitter, for ever. Five calls in a row that get no
answer at all open the circuit: calls are refused at once until a probe is answered. An error is an answer.
"""

import random
import time
from collections import deque
from time import monotonic
from typing import Final

import msgspec
import structlog

from gateway.repeated_warnings import RepeatedWarning
from gateway.upstreams.failures import ANSWERS, SessionLostError, UnreachableError, UpstreamError

log: Final = structlog.get_logger(__name__)

FAILED_CALLS: Final = 5
"""Failed calls in a row that open the circuit."""
MAX_BACKOFF: Final = 60.0
_REMEMBERED_FAILURES: Final = 20
_SAME_FAILURE_SECONDS: Final = 0.5
"""One cause fails every call that is open: they all say so within a moment."""


class PastFailure(msgspec.Struct, frozen=True):
    """A failure of an upstream."""

    at: float
    """Unix time."""
    message: str


class CircuitBreaker:
    """The failures of one upstream in a row, of connections and of calls."""

    def __init__(self, name: str) -> None:
        self.reason = ""
        """Why it cannot be reached."""
        self.next_try = 0.0
        """Until then, by `time.monotonic`, nothing is tried."""
        self.since = time.time()
        """Unix time at which it was last found to be there, or not to be there."""
        self.failures: Final[deque[PastFailure]] = deque(maxlen=_REMEMBERED_FAILURES)
        self.warning: Final = RepeatedWarning()
        """Whether to log that the upstream is away."""
        self._name: Final = name
        self._failed_connects = 0
        self._failed_calls = 0

    @property
    def is_open(self) -> bool:
        return self._failed_calls >= FAILED_CALLS

    @property
    def is_backing_off(self) -> bool:
        """Whether the last attempt to connect failed."""
        return self._failed_connects > 0

    @property
    def seconds_to_next_try(self) -> int:
        return max(1, round(self.next_try - monotonic()))

    def check_call(self) -> None:
        """Raises: UnreachableError: calls come to nothing just now."""
        if self.is_open:
            raise self.unreachable(self.reason)

    def check_connect(self) -> None:
        """Raises: UnreachableError: it is too early to try again."""
        if monotonic() < self.next_try:
            raise self.unreachable(self.reason)

    def connect_failed(self, reason: str) -> None:
        """Wait longer before the next attempt, but once for all that failed while the last wait went on."""
        if not self.reason:
            self.since = time.time()
        self._remember(reason)
        self.reason = reason
        if monotonic() < self.next_try:
            return
        self._failed_connects += 1
        # The exponent is bounded: 2.0 ** 1024 is an OverflowError, and attempts go on for ever.
        delay = min(MAX_BACKOFF, 2.0 ** min(self._failed_connects - 1, 10))
        # Replicas that lost a server at the same time must not all come back at the same time.
        self.next_try = monotonic() + delay * random.uniform(0.8, 1.2)  # noqa: S311 - spreads load

    def connected(self) -> None:
        """Note a handshake. An open circuit stays: a server that can be started may yet fail in each call."""
        if not self.is_open:
            self._close_backoff()

    def lost(self, reason: str) -> None:
        """Note the end of a session."""
        self.since = time.time()
        self._remember(reason)

    def call_failed(self, reason: str) -> None:
        self._remember(reason)
        self._failed_calls += 1
        if self.is_open:
            self.connect_failed(reason)
            if self.warning.is_due():
                log.warning("upstream does not answer", upstream=self._name, failed_calls=self._failed_calls)

    def answered(self, *, is_connected: bool) -> None:
        """Note an answer, be it an error: the upstream is there."""
        self._failed_calls = 0
        # Without a session, the answer came in one that is gone: new connections may still fail.
        if self._failed_connects and is_connected:
            self._close_backoff()

    def reset(self) -> None:
        """Try again at once: somebody says that it is there."""
        self._failed_calls = 0
        self._close_backoff()

    def named(self, error: UpstreamError) -> UpstreamError:
        """The error with the upstream's name in it."""
        text = str(error)
        if text.startswith(f"{self._name} "):
            return error
        if isinstance(error, ANSWERS) and not isinstance(error, SessionLostError):
            return type(error)(f"{self._name} {text}")
        return self.unreachable(text) if isinstance(error, UnreachableError) else type(error)(f"{self._name}: {text}")

    def unreachable(self, reason: str) -> UnreachableError:
        return UnreachableError(f"{self._name} cannot be reached: {reason}; next try in {self.seconds_to_next_try} s")

    def _close_backoff(self) -> None:
        self._failed_connects, self.reason, self.next_try = 0, "", 0.0

    def _remember(self, reason: str) -> None:
        last = self.failures[-1] if self.failures else None
        if last is None or last.message != reason or time.time() - last.at > _SAME_FAILURE_SECONDS:
            self.failures.append(PastFailure(time.time(), reason))
