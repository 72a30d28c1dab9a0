"""Prints the CPU time of each directory of tests and of the slowest tests: `pytest -p tests.cpu_seconds`.

Unlike elapsed time, CPU time does not depend on other load. The time of a child process is added to the test that waits
for its end: the time of a shared daemon is added to the last test that uses it.
"""

import os
from collections import Counter, defaultdict
from collections.abc import Generator
from typing import Final

import pytest

_START: Final = pytest.StashKey[float]()
_PROPERTY: Final = "cpu_seconds"
_SHOWN_TESTS: Final = 20


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    item.stash[_START] = _cpu_seconds()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, object, object]:
    try:
        return (yield)
    finally:
        item.user_properties.append((_PROPERTY, _cpu_seconds() - item.stash[_START]))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    seconds: defaultdict[str, float] = defaultdict(float)
    tests: Counter[str] = Counter()
    slowest: list[tuple[float, str]] = []
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport) and report.when == "teardown":
                directory = report.nodeid.partition("::")[0].rpartition("/")[0]
                spent = sum(float(str(value)) for name, value in report.user_properties if name == _PROPERTY)
                seconds[directory] += spent
                tests[directory] += 1
                slowest.append((spent, report.nodeid))
    terminalreporter.section("CPU seconds")
    for directory in sorted(seconds, key=lambda each: -seconds[each]):
        terminalreporter.line(f"{seconds[directory]:8.1f}  {directory} ({tests[directory]} tests)")
    terminalreporter.line(f"{sum(seconds.values()):8.1f}  in total, without collection")
    for spent, test in sorted(slowest, reverse=True)[:_SHOWN_TESTS]:
        terminalreporter.line(f"{spent:8.1f}  {test}")


def _cpu_seconds() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system
