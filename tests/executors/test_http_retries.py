"""Pauses before retries."""

import math
from datetime import UTC, datetime

import pytest

from gateway.config.models.backends import Retry
from gateway.net.retries import compile_retry, pause_before, statuses_of

NOW = datetime(2026, 7, 28, 12, 0, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("attempt", "jitter", "pause"),
    [(2, 1.0, 0.25), (2, 0.0, 0.125), (3, 1.0, 0.5), (4, 1.0, 1.0), (1_000_000, 1.0, 10.0)],
)
def test_pauses_grow_and_vary(attempt: int, jitter: float, pause: float) -> None:
    assert pause_before(attempt, jitter=jitter, headers={}, now=NOW) == pause


@pytest.mark.parametrize(
    ("value", "pause"),
    [
        ("7", 7.0),
        (" 0 ", 0.0),
        ("Tue, 28 Jul 2026 12:00:30 GMT", 30.0),
        ("Tue, 28 Jul 2026 11:00:00 GMT", 0.0),
        ("soon", 0.25),
        ("-5", 0.25),
        ("9" * 400, math.inf),
        ("9" * 5000, math.inf),
        (f"Mon, 01 Jan {'9' * 400} 00:00:00 GMT", 0.25),
        (f"Mon, 01 Jan 2026 00:00:00 +{'9' * 400}", 0.25),
        ("٣", 0.25),
        ("", 0.25),
    ],
)
def test_retry_after_is_respected(value: str, pause: float) -> None:
    assert pause_before(2, jitter=1.0, headers={"Retry-After": value}, now=NOW) == pause


def test_status_classes_are_expanded() -> None:
    assert statuses_of((404, "5xx")) == {404, *range(500, 600)}


def test_timeout_in_retry_means_connection_errors() -> None:
    policy = compile_retry(Retry(attempts=5, on=(429, "timeout")))
    assert (policy.attempts, policy.statuses, policy.after_failures) == (5, frozenset({429}), True)
    assert not compile_retry(Retry(on=(429,))).after_failures
    assert compile_retry(None).attempts == 1
