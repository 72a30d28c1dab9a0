"""What every test starts from, whatever has started pytest.

Generated cases are the same ones in every run where `CI` is set; elsewhere hypothesis looks for new ones. None is
timed: machines differ.
"""

import os
import signal

from hypothesis import HealthCheck, settings

settings.register_profile(
    "tests",
    deadline=None,
    max_examples=60,
    derandomize="CI" in os.environ,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
settings.load_profile("tests")

# A script's background job ignores SIGINT and SIGQUIT, and what nohup starts SIGHUP; whoever is started inherits it.
for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
