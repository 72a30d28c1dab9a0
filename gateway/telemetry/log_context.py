"""The ids that stand in every log line of a call, written by the gateway, a library, or a plugin in its thread.

A context variable holds them, so that the tasks and threads of the call inherit them. They are strings and nothing
else: an idle connection or a timer that a call leaves behind keeps its context alive, and must not keep a catalog.
"""

import random
from collections.abc import Mapping
from contextvars import ContextVar
from types import MappingProxyType
from typing import Final

CALL: Final = "call"
TRACE_ID: Final = "trace_id"
_ID_BYTES: Final = 6

LOG_CONTEXT: Final[ContextVar[Mapping[str, str]]] = ContextVar("facts of log lines", default=MappingProxyType({}))


def new_id() -> str:
    """Make the id of a call, which is unlikely to be met twice in a log. It is no secret."""
    # Not from `secrets`, which asks the kernel each time.
    return random.getrandbits(8 * _ID_BYTES).to_bytes(_ID_BYTES, "big").hex()


def current_call_id() -> str:
    """Return the id that the log lines of this task have, or a new one."""
    fields = LOG_CONTEXT.get()
    return fields[CALL] if CALL in fields else new_id()
