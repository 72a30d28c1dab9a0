"""A fork server for the workers of pytest-xdist: each is a fork of a process that has imported the tests.

Imports are half the cost of collection in each worker. Modules that pytest would collect for the command line are
imported here. An error during these imports happens again in each worker, which reports it.
"""

import gc
import signal
import socket
import sys
from collections.abc import Generator
from contextlib import suppress
from typing import Final

import pytest

from tests.fork_server import end, serve


class _ImportsAlone:
    """A pytest plugin: modules are imported, and only hypothesis's tests in them are collected.

    Where there is one, hypothesis reads the source of each module, for constants to try: seconds, for each worker.
    """

    @pytest.hookimpl(tryfirst=True)
    def pytest_pycollect_makeitem(self, obj: object) -> list[pytest.Item] | None:
        return None if getattr(obj, "is_hypothesis_test", False) is True else []

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(
        self, collector: pytest.Collector
    ) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
        """Forget a module that failed or was skipped, so that each worker imports it again and reports it."""
        report = yield
        if not report.passed:
            # pytest leaves half a module where it looks first (`--import-mode=importlib`): its first tests would pass.
            for name, module in list(sys.modules.items()):
                if getattr(module, "__file__", None) == str(collector.path):
                    del sys.modules[name]
        return report


_NO_TESTS: Final = ("-qq", "-n0", "--collect-only")

if __name__ == "__main__":
    descriptor, *words = sys.argv[1:]
    with suppress(Exception):
        pytest.main([*words, *_NO_TESTS], plugins=[_ImportsAlone()])
    gc.freeze()  # else the first collection in each worker would copy every page
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal, which is for who runs the tests
    serve(socket.socket(fileno=int(descriptor)))
    exec(sys.argv[sys.argv.index("-c") + 1])
    end(0)
