"""Waits for conditions, with a time limit for busy machines."""

import asyncio
import time
from collections.abc import Callable
from typing import Final

SECONDS: Final = 60.0


async def until(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(SECONDS):
        while not holds():
            await asyncio.sleep(0.005)


def wait_until(holds: Callable[[], object]) -> None:
    """Wait without an event loop."""
    deadline = time.monotonic() + SECONDS
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.005)
