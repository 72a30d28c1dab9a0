"""Tests for rate limits."""

from collections.abc import Coroutine
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.config.models.quantities import ParsedRate, RateLimit, parse_rate
from gateway.errors import OverLimitError
from gateway.limits import rate_limiter
from gateway.limits.rate_limiter import RateLimiter

WINDOW = 60


class Watch:
    """A manual clock."""

    def __init__(self, now: float = 1_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def limit(per_caller: str | None = None, in_all: str | None = None) -> RateLimit:
    return RateLimit.model_validate({"per_caller": per_caller, "in_all": in_all})


def at_once(work: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine that never suspends."""
    with pytest.raises(StopIteration):
        work.send(None)


def passes(budget: RateLimiter, allowed: RateLimit, *, caller: str = "ada") -> bool:
    try:
        at_once(budget.acquire("t", allowed, caller=caller))
    except OverLimitError:
        return False
    return True


def seconds_to_wait(budget: RateLimiter, allowed: RateLimit) -> int:
    """Spend once, now or after the retry delay."""
    try:
        at_once(budget.acquire("t", allowed, caller="ada"))
    except OverLimitError as error:
        return error.retry_after
    return 0


def how_many(budget: RateLimiter, allowed: RateLimit, *, caller: str = "ada") -> int:
    count = 0
    while passes(budget, allowed, caller=caller):
        count += 1
    return count


def test_rate_allows_exactly_its_amount() -> None:
    budget = RateLimiter(Watch())
    assert how_many(budget, limit("10/minute")) == 10
    assert budget.refused == 1


def test_caller_rates_are_independent() -> None:
    budget = RateLimiter(Watch())
    assert [how_many(budget, limit("3/hour"), caller=caller) for caller in ("ada", "bob")] == [3, 3]


def test_total_rate_applies_to_all_callers() -> None:
    budget, allowed = RateLimiter(Watch()), limit("3/hour", "4/hour")
    assert [how_many(budget, allowed, caller=caller) for caller in ("ada", "bob", "eve")] == [3, 1, 0]


def test_call_rejected_by_one_rate_does_not_count_for_the_other() -> None:
    budget, allowed = RateLimiter(Watch()), limit("1/hour", "2/hour")
    assert [passes(budget, allowed) for _ in range(9)] == [True, *[False] * 8]
    assert passes(budget, allowed, caller="bob")


def test_error_names_the_rate_the_key_and_the_retry_delay() -> None:
    budget = RateLimiter(Watch(now=WINDOW * 100))
    how_many(budget, limit("10/minute"))
    with pytest.raises(OverLimitError) as caught:
        at_once(budget.acquire("tools.deploy.rate_limit", limit("10/minute"), caller="ada", cost=11))
    assert str(caught.value) == (
        "Called too often: at most 10/minute for one caller (tools.deploy.rate_limit). Try again in 60 s."
    )
    by_tenant = RateLimit(per_caller=parse_rate("1/second"), key="{{ caller.claims.tenant }}")
    with pytest.raises(OverLimitError, match=r"for callers with the same `key` \(t\)"):
        at_once(budget.acquire("t", by_tenant, caller="acme", cost=2))
    with pytest.raises(OverLimitError, match=r"for all callers together \(t\)"):
        at_once(budget.acquire("t", limit(in_all="1/second"), caller="ada", cost=2))


@given(
    amount=st.integers(1, 60),
    start=st.integers(0, 24 * WINDOW).map(lambda eighths: eighths / 8),  # exact in binary
    steps=st.lists(st.integers(0, 8 * WINDOW).map(lambda eighths: eighths / 8), max_size=120),
)
def test_retry_after_the_delay_succeeds_within_the_rate(amount: int, start: float, steps: list[float]) -> None:
    watch = Watch(start)
    budget, allowed, passed = RateLimiter(watch), limit(f"{amount}/minute"), []
    for step in steps:
        watch.now += step
        wait = seconds_to_wait(budget, allowed)
        if wait:
            assert wait <= (WINDOW if amount <= 20 else WINDOW * 21 / 20)
            watch.now += wait
            at_once(budget.acquire("t", allowed, caller="ada"))
        passed.append(watch.now)
    for at in passed:
        assert sum(at - WINDOW < other <= at for other in passed) <= amount


@pytest.mark.parametrize("written", ["10/minute", "100/minute"])
def test_retry_delay_is_exact(written: str) -> None:
    watch = Watch()
    budget, allowed = RateLimiter(watch), limit(written)
    how_many(budget, allowed)
    with pytest.raises(OverLimitError) as caught:
        at_once(budget.acquire("t", allowed, caller="ada"))
    watch.now += caught.value.retry_after - 1.5
    assert not passes(budget, allowed)
    watch.now += 1.5
    assert passes(budget, allowed)


def test_budget_survives_an_edit() -> None:
    watch = Watch()
    budget = RateLimiter(watch)
    assert how_many(budget, limit("10/minute")) == 10
    assert how_many(budget, limit("12/minute")) == 2
    assert how_many(budget, limit("12/hour")) == 0
    assert how_many(budget, limit("15/hour")) == 3
    assert how_many(budget, limit("15/second")) == 0
    watch.now += 3
    assert how_many(budget, limit("15/second")) == 15
    assert how_many(budget, limit("100/second")) == 85
    assert how_many(budget, limit("100/hour")) == 0
    assert how_many(budget, limit("20/hour")) == 0


def test_refund_makes_room() -> None:
    budget, allowed = RateLimiter(Watch()), limit("1/hour", "1/hour")
    assert passes(budget, allowed)
    at_once(budget.refund("t", allowed, caller="ada"))
    assert [passes(budget, allowed) for _ in range(2)] == [True, False]


def test_refunds_do_not_exceed_the_rate() -> None:
    budget, allowed = RateLimiter(Watch()), limit("2/hour")
    for _ in range(5):
        at_once(budget.refund("t", allowed, caller="ada"))
    assert how_many(budget, allowed) == 2


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rate_limiter, "MAX_LOGS", 100)
    watch = Watch()
    budget, allowed = RateLimiter(watch), limit("1/minute")
    for caller in range(1000):
        assert passes(budget, allowed, caller=f"caller {caller}")
    assert len(budget) == 100
    assert not passes(budget, allowed, caller="caller 999")
    watch.now += 3 * WINDOW
    for caller in range(60):
        passes(budget, allowed, caller=f"other {caller}")
    assert len(budget) == 60


def test_long_caller_names_are_hashed() -> None:
    budget, allowed = RateLimiter(Watch()), limit("1/minute")
    assert [passes(budget, allowed, caller="x" * 9000 + end) for end in "aab"] == [True, False, True]


@pytest.mark.parametrize("written", ["10/minute", "1/second", "9999999/day"])
def test_rate_is_printed_as_written(written: str) -> None:
    parsed = parse_rate(written)
    assert isinstance(parsed, ParsedRate)
    assert str(parsed) == written


def test_edit_to_a_longer_period_keeps_counting_calls() -> None:
    watch = Watch()
    budget = RateLimiter(watch)
    assert how_many(budget, limit("30/minute")) == 30
    watch.now += 30
    assert how_many(budget, limit("30/hour")) == 0
    watch.now += 60
    assert how_many(budget, limit("30/hour")) == 0


def test_rejected_attempts_do_not_extend_the_wait() -> None:
    watch = Watch()
    budget, allowed = RateLimiter(watch), limit("1/minute")
    assert passes(budget, allowed)
    for _ in range(59):
        watch.now += 1
        assert not passes(budget, allowed)
    watch.now += 1
    assert passes(budget, allowed)


def test_memory_does_not_grow_with_the_rate() -> None:
    watch = Watch()
    budget, allowed = RateLimiter(watch), limit("9999/minute")
    for _ in range(5000):
        watch.now += 0.1
        assert passes(budget, allowed)
    [(_, log)] = budget._logs.items()
    assert len(log._calls) <= rate_limiter.RESOLUTION + 1
