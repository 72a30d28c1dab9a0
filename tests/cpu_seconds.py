"""Shows what each directory of tests costs, and each of the dearest tests: `pytest -p tests.cpu_seconds`.

Processor time, and not the time that passes: that depends on who else uses the machine. Children count where they were
waited for: a daemon that many tests share, with the last of them.
"""

import os
from collections import Counter, defaultdict
from collections.abc import Generator
from typing import Final

import pytest

_BEGAN: Final = pytest.StashKey[float]()
_PROPERTY: Final = "cpu_seconds"
_DEAREST: Final = 20


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    item.stash[_BEGAN] = _spent()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, object, object]:
    try:
        return (yield)
    finally:
        item.user_properties.append((_PROPERTY, _spent() - item.stash[_BEGAN]))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    seconds: defaultdict[str, float] = defaultdict(float)
    tests: Counter[str] = Counter()
    of_each: list[tuple[float, str]] = []
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport) and report.when == "teardown":
                directory = report.nodeid.partition("::")[0].rpartition("/")[0]
                spent = sum(float(str(value)) for name, value in report.user_properties if name == _PROPERTY)
                seconds[directory] += spent
                tests[directory] += 1
                of_each.append((spent, report.nodeid))
    terminalreporter.section("seconds of processor time")
    for directory in sorted(seconds, key=lambda each: -seconds[each]):
        terminalreporter.line(f"{seconds[directory]:8.1f}  {directory} ({tests[directory]} tests)")
    terminalreporter.line(f"{sum(seconds.values()):8.1f}  in all, without collecting them")
    for spent, test in sorted(of_each, reverse=True)[:_DEAREST]:
        terminalreporter.line(f"{spent:8.1f}  {test}")


def _spent() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system
