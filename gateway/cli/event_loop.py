"""Runs a command on uvloop, if it is available."""

import asyncio
import sys
from collections.abc import Callable, Coroutine

from gateway.json_types import Json

if sys.platform == "win32":
    EVENT_LOOP: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop
else:
    import uvloop

    EVENT_LOOP = uvloop.new_event_loop


def run(command: Coroutine[Json, Json, int]) -> int:
    with asyncio.Runner(loop_factory=EVENT_LOOP) as runner:
        return runner.run(command)
