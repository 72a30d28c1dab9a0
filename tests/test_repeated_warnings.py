"""A warning about a lasting problem is logged once, and again if the problem returns."""

from gateway.repeated_warnings import RepeatedWarning


def test_warning_is_due_once_until_it_is_reset() -> None:
    warning = RepeatedWarning()
    assert [warning.is_due() for _ in range(3)] == [True, False, False]
    warning.reset()
    assert warning.is_due()
