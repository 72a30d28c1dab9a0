"""Tests for the steady clock."""

import pytest

from gateway.state.session_store import SteadyClock


def test_clock_never_goes_back() -> None:
    system, monotonic = [1000.0], [5.0]
    clock = SteadyClock(system=lambda: system[0], monotonic=lambda: monotonic[0])

    def after(seconds: float, *, set_by: float = 0.0) -> float:
        system[0] += seconds + set_by
        monotonic[0] += seconds
        return clock()

    assert after(1) == pytest.approx(1001)
    assert after(1, set_by=-500) == pytest.approx(1002)
    assert after(10) == pytest.approx(1012)
    assert after(1, set_by=+5000) == pytest.approx(1000 + 13 - 500 + 5000)
