"""The backoff and the circuit breaker of one upstream server.

Failed connections are retried after 1 s, 2 s … 60 s, with jitter. Five calls in a row without a response open the
circuit. Calls then fail immediately until a probe succeeds. An error response counts as a response.
"""

import random
import time
from collections import deque
from time import monotonic
from typing import Final

import structlog

from gateway.repeated_warnings import RepeatedWarning
from gateway.upstreams.failures import ANSWERS, SessionLostError, UnreachableError, UpstreamError

log: Final = structlog.get_logger(__name__)

FAILED_CALLS: Final = 5
MAX_BACKOFF: Final = 60.0
_REMEMBERED_FAILURES: Final = 20
_SAME_FAILURE_SECONDS: Final = 0.5
"""One cause can fail all open calls, so repetitions within this time are not recorded."""


class CircuitBreaker:
    def __init__(self, name: str) -> None:
        self.reason = ""
        self.next_try = 0.0
        """Earliest time of the next connection attempt, by `time.monotonic`."""
        self.since = time.time()
        """Unix time at which the server became reachable or unreachable."""
        self.failures: Final[deque[tuple[float, str]]] = deque(maxlen=_REMEMBERED_FAILURES)
        """The Unix time and message of each recent failure."""
        self.warning: Final = RepeatedWarning()
        self._name: Final = name
        self._failed_connects = 0
        self._failed_calls = 0

    @property
    def is_open(self) -> bool:
        return self._failed_calls >= FAILED_CALLS

    @property
    def is_backing_off(self) -> bool:
        return self._failed_connects > 0

    @property
    def seconds_to_next_try(self) -> int:
        return max(1, round(self.next_try - monotonic()))

    def check_call(self) -> None:
        """Raise UnreachableError if the circuit is open."""
        if self.is_open:
            raise self.unreachable(self.reason)

    def check_connect(self) -> None:
        """Raise UnreachableError during the backoff."""
        if monotonic() < self.next_try:
            raise self.unreachable(self.reason)

    def connect_failed(self, reason: str) -> None:
        """Record a failed connection, and increase the backoff unless a backoff is already running."""
        if not self.reason:
            self.since = time.time()
        self._record(reason)
        self.reason = reason
        if monotonic() < self.next_try:
            return
        self._failed_connects += 1
        # 2.0 ** 1024 would raise OverflowError.
        delay = min(MAX_BACKOFF, 2.0 ** min(self._failed_connects - 1, 10))
        # Jitter keeps replicas from reconnecting at the same time.
        self.next_try = monotonic() + delay * random.uniform(0.8, 1.2)  # noqa: S311 - spreads load

    def connected(self) -> None:
        """Record a successful handshake. An open circuit stays open, because calls may still fail."""
        if not self.is_open:
            self._close_backoff()

    def lost(self, reason: str) -> None:
        self.since = time.time()
        self._record(reason)

    def call_failed(self, reason: str) -> None:
        self._record(reason)
        self._failed_calls += 1
        if self.is_open:
            self.connect_failed(reason)
            if self.warning.is_due():
                log.warning("upstream does not respond", upstream=self._name, failed_calls=self._failed_calls)

    def answered(self, *, is_connected: bool) -> None:
        self._failed_calls = 0
        # A response in a closed session does not prove that new connections succeed.
        if self._failed_connects and is_connected:
            self._close_backoff()

    def reset(self) -> None:
        self._failed_calls = 0
        self._close_backoff()

    def with_name(self, error: UpstreamError) -> UpstreamError:
        """Prefix an error with the name of the server."""
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

    def _record(self, reason: str) -> None:
        at, message = self.failures[-1] if self.failures else (0.0, "")
        if message != reason or time.time() - at > _SAME_FAILURE_SECONDS:
            self.failures.append((time.time(), reason))
