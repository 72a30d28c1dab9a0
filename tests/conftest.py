"""Settings and fixtures of all tests.

Hypothesis generates the same cases in every CI run, and new ones elsewhere.
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
from tests.examples import DEFAULT, IS_CI, share_of
from tests.mariadb import Mariadb, running_mariadb
from tests.postgresql import Postgresql, running_postgresql

MAX_WORKERS: Final = 8
"""With more workers, collecting the tests takes longer than running them."""
REMOVED_VARIABLES: Final = frozenset({"COLUMNS", "FORCE_COLOR", "LINES", "NOTIFY_SOCKET", "NO_COLOR"})

settings.register_profile(
    "tests",
    deadline=None,
    max_examples=share_of(DEFAULT),
    derandomize=IS_CI,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
settings.load_profile("tests")

# Variables that configure a daemon or a terminal are removed. Tests set the ones that they need.
for name in tuple(os.environ):
    is_for_tests = name.startswith(("MCP_GATEWAY_TEST_", "MCP_GATEWAY_FUZZ_"))
    is_setting = name.startswith(("MCP_GATEWAY_", "OTEL_", "LISTEN_", "WATCHDOG_"))
    if name in REMOVED_VARIABLES or (is_setting and not is_for_tests):
        del os.environ[name]
# Daemons must not write to the user's home. Tests that need a state directory set one.
os.environ["MCP_GATEWAY_STATE_DIR"] = "none"
os.environ["XDG_STATE_HOME"] = str(Path(tempfile.gettempdir()) / f"mcp-gateway-tests-{os.getpid()}")
# Without bytecode files, each of hundreds of processes would compile the project again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
os.environ["NO_PROXY"] = os.environ["no_proxy"] = "127.0.0.1,localhost,::1"  # loopback is never proxied

# Background jobs of a script ignore SIGINT and SIGQUIT, and `nohup` ignores SIGHUP. Child processes would inherit this.
for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)


fork_server.install()


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Return the number of workers: 0, which means only this process, if a single file or test is named."""
    if len(config.args) == 1 and not Path(config.args[0]).is_dir():
        return 0
    # Two more than processors, because many tests wait for processes or timers.
    return min(processors_of_affinity() + 2, MAX_WORKERS)


def pytest_xdist_setupnodes(specs: Iterable[execnet.XSpec]) -> None:
    for spec in specs:
        spec.python = shlex.quote(fork_server.WORKER)


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    worker_reports.install(config)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    return build_files.is_skipped(collection_path, config) or None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item], config: pytest.Config) -> None:
    build_files.find_unmarked(items, config)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect tests with the garbage collector disabled, which halves the time."""
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
