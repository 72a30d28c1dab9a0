"""A fork server for the workers of pytest-xdist: each is a fork of a process that has imported the tests.

Imports are half of what collecting costs each worker. What is imported is what pytest would collect with the words of
the command line; whatever goes wrong meanwhile goes wrong again in each worker, which reports it.
"""

import gc
import signal
import socket
import sys
from typing import Final

import pytest

from tests.fork_server import end, serve


class _ImportsAlone:
    """A pytest plugin: modules are imported, and nothing in them becomes a test."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_pycollect_makeitem(self) -> list[pytest.Item]:
        return []


_NO_TESTS: Final = ("-qq", "-n0", "--collect-only")

if __name__ == "__main__":
    descriptor, *words = sys.argv[1:]
    pytest.main([*words, *_NO_TESTS], plugins=[_ImportsAlone()])
    gc.freeze()  # else the first collection in each worker would copy every page
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal, which is for who runs the tests
    serve(socket.socket(fileno=int(descriptor)))
    exec(sys.argv[sys.argv.index("-c") + 1])
    end(0)
