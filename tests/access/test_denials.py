"""Refusals are written down until somebody makes too many of them; those that are left out are counted."""

from gateway.access.denials import MOST_AT_ONCE, Denials


def test_a_flood_is_counted_and_a_trickle_written_down() -> None:
    now = 100.0
    denials = Denials(lambda: now)
    assert [denials.take() for _ in range(int(MOST_AT_ONCE))] == [0] * int(MOST_AT_ONCE)
    assert [denials.take() for _ in range(5)] == [None] * 5
    now += 1
    assert denials.take() == 5
    assert denials.take() is None
    now += 1000
    assert [denials.take() for _ in range(int(MOST_AT_ONCE) + 1)] == [1, *[0] * (int(MOST_AT_ONCE) - 1), None]
