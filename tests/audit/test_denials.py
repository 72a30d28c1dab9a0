"""Tests for the limit of denial records."""

from gateway.audit.recorder import MAX_BURST, DenialLogLimiter


def test_denial_floods_are_counted() -> None:
    now = 100.0
    denials = DenialLogLimiter(lambda: now)
    assert [denials.allows() for _ in range(int(MAX_BURST))] == [0] * int(MAX_BURST)
    assert [denials.allows() for _ in range(5)] == [None] * 5
    now += 1
    assert denials.allows() == 5
    assert denials.allows() is None
    now += 1000
    assert [denials.allows() for _ in range(int(MAX_BURST) + 1)] == [1, *[0] * (int(MAX_BURST) - 1), None]
