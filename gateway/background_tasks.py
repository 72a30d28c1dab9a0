"""Tasks that run beside their owner until it ends them, or they end by themselves."""

import asyncio
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

T = TypeVar("T")


class BackgroundTasks:
    """Tasks of one owner. Unlike those of a TaskGroup, one that fails ends none of the others."""

    def __init__(self) -> None:
        # The event loop itself holds tasks weakly: one that nobody holds may vanish while it waits.
        self._tasks: Final[set[asyncio.Task[Any]]] = set()

    def begin(self, work: Coroutine[Any, Any, T], *, name: str) -> asyncio.Task[T]:
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def wait(self) -> None:
        """Wait for the ends of those that run, and of those that are begun meanwhile."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def cancel(self) -> None:
        """Cancel those that run, and wait for their ends."""
        tasks = [*self._tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
