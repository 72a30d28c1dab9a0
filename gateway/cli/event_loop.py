"""Runs a command on uvloop."""

import asyncio
from collections.abc import Coroutine

import uvloop

from gateway.json_types import Json


def run(command: Coroutine[Json, Json, int]) -> int:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(command)
