"""The call id in log lines of the gateway, libraries and plugins.

Tasks and threads inherit the context variable. It only holds strings, because idle connections and timers keep the
context of a call alive.
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
    """Return a new call id. It is not secret."""
    # `secrets` would call the kernel each time.
    return random.getrandbits(8 * _ID_BYTES).to_bytes(_ID_BYTES, "big").hex()


def current_call_id() -> str:
    fields = LOG_CONTEXT.get()
    return fields[CALL] if CALL in fields else new_id()
