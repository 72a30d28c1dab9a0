"""Decides after which responses a request is retried, and computes the delay. No I/O and no clock."""

from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import lru_cache
from typing import Final

import msgspec

from gateway.config.models.backends import Retry

IDEMPOTENT: Final = frozenset({"GET", "HEAD", "OPTIONS", "PUT", "DELETE"})
"""HTTP methods that are retried by default (RFC 9110 §9.2.2)."""

_FIRST_PAUSE: Final = 0.25
_MAX_PAUSE: Final = 10.0
"""The longest backoff in seconds. `Retry-After` can request a longer delay."""


class RetryPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """The compiled `retry` setting."""

    attempts: int = 1
    statuses: frozenset[int] = frozenset()
    after_failures: bool = False
    """Whether to retry after a timeout or a connection error."""


def compile_retry(retry: Retry | None) -> RetryPolicy:
    if retry is None:
        return RetryPolicy()
    statuses = statuses_of(tuple(condition for condition in retry.on if condition != "timeout"))
    return RetryPolicy(attempts=retry.attempts, statuses=statuses, after_failures="timeout" in retry.on)


@lru_cache(maxsize=256)
def statuses_of(patterns: tuple[int | str, ...]) -> frozenset[int]:
    """Expand classes such as 5xx to statuses. The result is cached, so that equal policies share one large set."""
    return frozenset(
        status
        for pattern in patterns
        for status in (
            range(int(pattern[0]) * 100, int(pattern[0]) * 100 + 100) if isinstance(pattern, str) else [pattern]
        )
    )


def pause_before(attempt: int, *, dice: float, headers: Mapping[str, str], now: datetime) -> float:
    """Return the seconds to wait before an attempt: the delay that the server requests, or a backoff with jitter.

    `attempt` is 2 for the first retry. `dice` is a random number between 0 and 1.
    """
    longest = min(_FIRST_PAUSE * 2 ** min(attempt - 2, 10), _MAX_PAUSE)
    # Randomize half of the delay, so that callers that failed together do not retry together.
    jittered = longest * (0.5 + dice / 2)
    asked = _retry_after(headers.get("Retry-After", ""), now)
    return jittered if asked is None else max(asked, 0.0)


def _retry_after(value: str, now: datetime) -> float | None:
    """Return the seconds in `Retry-After`, which contains seconds or a date (RFC 9110 §10.2.3)."""
    value = value.strip()
    # `isdigit` accepts `²`, which `float` rejects.
    if value.isascii() and value.isdigit():
        return float(value)
    try:
        when = parsedate_to_datetime(value)
    except (ValueError, OverflowError):  # OverflowError: the year or offset has too many digits.
        return None
    # RFC 9110 §5.6.7: dates are in GMT. The obsolete asctime format contains no time zone.
    return ((when if when.tzinfo else when.replace(tzinfo=UTC)) - now).total_seconds()
