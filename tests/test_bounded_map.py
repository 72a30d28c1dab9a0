"""Limits and expiry of a bounded map."""

from gateway.bounded_map import BoundedMap


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_least_recently_used_entry_is_removed_first() -> None:
    known: BoundedMap[str, int] = BoundedMap(2)
    known.put("a", 1)
    known.put("b", 2)
    assert known.get("a") == 1
    known.put("c", 3)
    assert [known.get(key) for key in "abc"] == [1, None, 3]


def test_total_cost_of_entries_is_bounded() -> None:
    known: BoundedMap[str, int] = BoundedMap(10)
    for key, cost in (("a", 4), ("b", 4), ("c", 2), ("d", 5)):
        known.put(key, cost, cost=cost)
    assert dict(known.items()) == {"c": 2, "d": 5}
    known.put("d", 1, cost=1)
    known.put("e", 7, cost=7)
    assert dict(known.items()) == {"c": 2, "d": 1, "e": 7}


def test_too_large_entry_is_not_stored_and_removes_the_old_one() -> None:
    known: BoundedMap[str, int] = BoundedMap(10)
    known.put("a", 1, cost=1)
    known.put("b", 2, cost=1)
    known.put("a", 3, cost=11)
    assert dict(known.items()) == {"b": 2}


def test_expired_entry_is_not_returned_and_is_removed() -> None:
    clock = Clock()
    known: BoundedMap[int, str] = BoundedMap(1000, clock=clock)
    for number in range(100):
        known.put(number, "old", expires=clock.now + 10)
    clock.now += 10
    assert known.get(99) is None
    assert list(known.items()) == []
    for number in range(100, 160):
        known.put(number, "new", expires=clock.now + 10)
    assert len(known) == 60
