"""Removes messages of pytest-xdist's workers that are not shown: a passed test sends one message instead of five.

Each message takes as much CPU time as a trivial test. Nothing is shown of a passed setup or teardown.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

import pytest
from pytest_rerunfailures import StatusDB

_OPTIONS_THAT_NEED_ALL: Final = ("durations", "xmlpath")
_NOT_SHOWN: Final = frozenset({"logstart", "logfinish"})


def install(config: pytest.Config) -> None:
    """Reduce the messages of this process if it is a worker."""
    if not hasattr(config, "workerinput"):
        return
    options: Any = config
    # Before each test, pytest-rerunfailures would ask the main process for earlier failures, and wait for 44 ms.
    options.failures_db.sock.close()
    options.failures_db = StatusDB()
    if not any(config.getoption(name, None) for name in _OPTIONS_THAT_NEED_ALL):
        sender: Any = next(each for each in config.pluginmanager.get_plugins() if hasattr(each, "sendevent"))
        sender.sendevent = partial(_send, sender.sendevent)


def _send(send: Callable[..., None], name: str, **event: Any) -> None:
    if name not in _NOT_SHOWN and not (name == "testreport" and _is_silent(event["data"])):
        send(name, **event)


def _is_silent(report: Mapping[str, Any]) -> bool:
    has_passed = report["outcome"] == "passed" and report["when"] != "call"
    return has_passed and not report["sections"] and not report["user_properties"]
