"""What every test starts from, whatever has started pytest.

Generated cases are the same ones in every run where `CI` is set; elsewhere hypothesis looks for new ones. None is
timed: machines differ.
"""

import os
import signal
from typing import Final

from hypothesis import HealthCheck, settings

FOREIGN: Final = frozenset({"COLUMNS", "FORCE_COLOR", "LINES", "NOTIFY_SOCKET", "NO_COLOR"})

settings.register_profile(
    "tests",
    deadline=None,
    max_examples=60,
    derandomize="CI" in os.environ,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
settings.load_profile("tests")

# What configures a daemon, or a terminal, is for each test to say; and no proxy leads to this machine's own loopback.
for name in tuple(os.environ):
    is_ours = name.startswith(("MCP_GATEWAY_TEST_", "MCP_GATEWAY_FUZZ_"))
    if name in FOREIGN or (name.startswith(("MCP_GATEWAY_", "OTEL_", "LISTEN_", "WATCHDOG_")) and not is_ours):
        del os.environ[name]
os.environ["NO_PROXY"] = os.environ["no_proxy"] = "127.0.0.1,localhost,::1"

# A script's background job ignores SIGINT and SIGQUIT, and what nohup starts SIGHUP; whoever is started inherits it.
for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
