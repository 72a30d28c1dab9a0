"""Starts background tasks and waits for their end."""

import asyncio
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

T = TypeVar("T")


class BackgroundTasks:
    """A group of background tasks. Unlike in `asyncio.TaskGroup`, a failed task does not cancel the other tasks."""

    def __init__(self) -> None:
        # Keep references to the tasks, because the event loop only keeps weak references.
        self._tasks: Final[set[asyncio.Task[Any]]] = set()

    def begin(self, work: Coroutine[Any, Any, T], *, name: str) -> asyncio.Task[T]:
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def wait(self) -> None:
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def cancel(self) -> None:
        tasks = [*self._tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
