"""Decides whether to retry a request, and after which delay. No I/O and no clock."""

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
"""The maximum backoff in seconds. `Retry-After` can request a longer delay."""


class RetryPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """The compiled `retry` setting."""

    attempts: int = 1
    statuses: frozenset[int] = frozenset()
    after_failures: bool = False
    """Whether requests are also retried after timeouts and connection errors."""


def compile_retry(retry: Retry | None) -> RetryPolicy:
    if retry is None:
        return RetryPolicy()
    statuses = statuses_of(tuple(condition for condition in retry.on if condition != "timeout"))
    return RetryPolicy(attempts=retry.attempts, statuses=statuses, after_failures="timeout" in retry.on)


@lru_cache(maxsize=256)
def statuses_of(patterns: tuple[int | str, ...]) -> frozenset[int]:
    """Expand entries such as 5xx to single statuses. The result is cached, so that equal policies share one set."""
    return frozenset(
        status
        for pattern in patterns
        for status in (
            range(int(pattern[0]) * 100, int(pattern[0]) * 100 + 100) if isinstance(pattern, str) else [pattern]
        )
    )


def pause_before(attempt: int, *, jitter: float, headers: Mapping[str, str], now: datetime) -> float:
    """Return the seconds to wait before an attempt: as requested by `Retry-After`, or else a backoff with jitter.

    `attempt` is 2 for the first retry. `jitter` is a random number between 0 and 1.
    """
    longest = min(_FIRST_PAUSE * 2 ** min(attempt - 2, 10), _MAX_PAUSE)
    # Randomize half of the delay, so that callers that failed together do not retry together.
    jittered = longest * (0.5 + jitter / 2)
    asked = _retry_after(headers.get("Retry-After", ""), now)
    return jittered if asked is None else max(asked, 0.0)


def _retry_after(value: str, now: datetime) -> float | None:
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
