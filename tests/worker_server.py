"""A fork server for the workers of pytest-xdist: each worker is a fork of a process that has imported the tests.

Imports take half of the collection time of a worker. This process imports the modules that pytest collects for the
command line. An error during an import happens again in each worker, which reports it.
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


class _OnlyImport:
    """A pytest plugin that imports modules, but collects only their hypothesis tests.

    If there are hypothesis tests, hypothesis reads constants from the source of each module, which takes seconds.
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
            # With `--import-mode=importlib`, pytest would reuse the incomplete module, and its first tests would pass.
            for name, module in list(sys.modules.items()):
                if getattr(module, "__file__", None) == str(collector.path):
                    del sys.modules[name]
        return report


_NO_TESTS: Final = ("-qq", "-n0", "--collect-only")

if __name__ == "__main__":
    descriptor, *words = sys.argv[1:]
    with suppress(Exception):
        pytest.main([*words, *_NO_TESTS], plugins=[_OnlyImport()])
    gc.freeze()  # otherwise, the first garbage collection in each worker would copy all pages
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is handled by the process that runs the tests
    serve(socket.socket(fileno=int(descriptor)))
    exec(sys.argv[sys.argv.index("-c") + 1])
    end(0)
