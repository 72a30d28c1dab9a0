"""What every test starts from, whatever has started pytest.

Generated cases are the same ones in every run where `CI` is set; elsewhere hypothesis looks for new ones. None is
timed: machines differ.
"""

import gc
import os
import shlex
import signal
import sys
import tempfile
from collections.abc import Generator, Iterable, Iterator
from pathlib import Path
from typing import Final

import execnet
import pytest
from hypothesis import HealthCheck, settings

from gateway.platform_facilities import processors_of_affinity
from tests import build_files, fork_server, worker_reports
from tests.examples import DEFAULT, IS_BUILD, share_of
from tests.mariadb import Mariadb, running_mariadb
from tests.postgresql import Postgresql, running_postgresql

MOST_WORKERS: Final = 8
"""More would spend longer on collecting tests than on running them."""
FOREIGN: Final = frozenset({"COLUMNS", "FORCE_COLOR", "LINES", "NOTIFY_SOCKET", "NO_COLOR"})

settings.register_profile(
    "tests",
    deadline=None,
    max_examples=share_of(DEFAULT),
    derandomize=IS_BUILD,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
settings.load_profile("tests")

# What configures a daemon, or a terminal, is for each test to say; and no proxy leads to this machine's own loopback.
for name in tuple(os.environ):
    is_ours = name.startswith(("MCP_GATEWAY_TEST_", "MCP_GATEWAY_FUZZ_"))
    if name in FOREIGN or (name.startswith(("MCP_GATEWAY_", "OTEL_", "LISTEN_", "WATCHDOG_")) and not is_ours):
        del os.environ[name]
# No daemon writes into the home of who runs the tests; one that is to keep its state is given a directory.
os.environ["MCP_GATEWAY_STATE_DIR"] = "none"
os.environ["XDG_STATE_HOME"] = str(Path(tempfile.gettempdir()) / f"mcp-gateway-tests-{os.getpid()}")
# Hundreds of processes start here: with PYTHONDONTWRITEBYTECODE each compiles the project anew, for most of its start.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
os.environ["NO_PROXY"] = os.environ["no_proxy"] = "127.0.0.1,localhost,::1"

# Background jobs of a script ignore SIGINT and SIGQUIT, and nohup ignores SIGHUP. Child processes inherit this.
for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)


fork_server.install()


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Return the number of processes to run tests in: none beside this one where a single file or test is named."""
    if len(config.args) == 1 and not Path(config.args[0]).is_dir():
        return 0
    # More than there are processors, since many a test waits for another process, or for a time to pass.
    return min(processors_of_affinity() + 2, MOST_WORKERS)


def pytest_xdist_setupnodes(specs: Iterable[execnet.XSpec]) -> None:
    for spec in specs:
        spec.python = shlex.quote(fork_server.WORKER)


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    worker_reports.install(config)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    return build_files.is_left_out(collection_path, config) or None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item], config: pytest.Config) -> None:
    build_files.find_hidden(items, config)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect tests without the garbage collector, which would look again and again at what stays: half of the time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture(scope="session")
def postgresql() -> Iterator[Postgresql]:
    """A PostgreSQL server for all tests of this process. Each test creates separate tables."""
    with running_postgresql() as server:
        yield server


@pytest.fixture(scope="session")
def mariadb() -> Iterator[Mariadb]:
    """A MariaDB server for all tests of this process. Each test creates separate tables."""
    with running_mariadb() as server:
        yield server
