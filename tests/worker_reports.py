"""A pytest plugin for pytest-xdist's workers: each test that passes is one report, in place of five messages.

A message costs both processes as much as a trivial test, and of a set-up or teardown that passed nothing is shown.
"""

from typing import Final

import pytest
from _pytest.runner import runtestprotocol

_OTHERS_NEED_ALL: Final = ("durations", "maxfail", "reruns", "xmlpath")


def install(config: pytest.Config) -> None:
    """Register the plugin where this process is a worker, and no option needs each report as it comes."""
    if hasattr(config, "workerinput") and not any(config.getoption(name, None) for name in _OTHERS_NEED_ALL):
        config.pluginmanager.register(_WorkerReports())


class _WorkerReports:
    @pytest.hookimpl
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool:
        for report in runtestprotocol(item, log=False, nextitem=nextitem):
            if report.when == "call" or not report.passed or report.sections or report.user_properties:
                item.ihook.pytest_runtest_logreport(report=report)
        return True
