"""Lets pytest-xdist's workers send what is shown: each test that passes is one report, in place of five messages.

A message costs both processes as much as a trivial test, and of a set-up or teardown that passed nothing is shown.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

import pytest
from pytest_rerunfailures import StatusDB

_OTHERS_NEED_ALL: Final = ("durations", "xmlpath")
_NOT_SHOWN: Final = frozenset({"logstart", "logfinish"})


def install(config: pytest.Config) -> None:
    """Do so where this process is a worker, and no option needs each report."""
    if not hasattr(config, "workerinput"):
        return
    options: Any = config
    # The plugin asks the first process before each test how often it has failed there: 44 ms in which nothing is done.
    options.failures_db.sock.close()
    options.failures_db = StatusDB()
    if not any(config.getoption(name, None) for name in _OTHERS_NEED_ALL):
        sender: Any = next(each for each in config.pluginmanager.get_plugins() if hasattr(each, "sendevent"))
        sender.sendevent = partial(_send, sender.sendevent)


def _send(send: Callable[..., None], name: str, **event: Any) -> None:
    if name not in _NOT_SHOWN and not (name == "testreport" and _is_silent(event["data"])):
        send(name, **event)


def _is_silent(report: Mapping[str, Any]) -> bool:
    has_passed = report["outcome"] == "passed" and report["when"] != "call"
    return has_passed and not report["sections"] and not report["user_properties"]
