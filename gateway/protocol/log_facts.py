"""What every log line of a call carries, whoever writes it: the gateway, a library, or a plugin in its thread.

The context of the task holds it, so that it goes along into whatever the call begins. Text alone, for what the call
leaves behind (an idle connection, a timer) keeps the context that it was made in, and must not keep a catalog with it.
"""

import random
from collections.abc import Mapping
from contextvars import ContextVar
from types import MappingProxyType
from typing import Final

CALL: Final = "call"
TRACE_ID: Final = "trace_id"
_ID_BITS: Final = 48

LOG_FACTS: Final[ContextVar[Mapping[str, str]]] = ContextVar("facts of log lines", default=MappingProxyType({}))


def new_id() -> str:
    """An id for a call: not to be met twice in a log, and no secret."""
    return f"{random.getrandbits(_ID_BITS):012x}"


def this_call() -> str:
    """The id that stands in the log lines of this task already, or a new one."""
    return LOG_FACTS.get().get(CALL) or new_id()
