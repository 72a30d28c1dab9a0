"""Tracks the running requests of one sender, so that notifications can cancel them."""

import asyncio
from collections.abc import Coroutine
from typing import TypeVar

from gateway.errors import ErrorCode, RpcError
from gateway.json_types import Json
from gateway.wire.jsonrpc import RequestId

T = TypeVar("T")


class InFlight:
    """The asyncio tasks of requests, by request id."""

    __slots__ = ("_cancelled", "_tasks")

    def __init__(self) -> None:
        self._tasks: dict[RequestId, asyncio.Task[Json]] = {}
        self._cancelled: set[RequestId] = set()

    def __len__(self) -> int:
        return len(self._tasks)

    async def run(self, request_id: RequestId, answer: Coroutine[Json, Json, T]) -> T | None:
        """Await the response to a request in the current task; None if `cancel` was called.

        Raises:
            RpcError: -32600, a request with this id is running.
        """
        task = asyncio.current_task()
        if task is None or request_id in self._tasks:
            # Python warns of coroutines that are never awaited.
            answer.close()
            raise RpcError(ErrorCode.INVALID_REQUEST, "A request with this id is already being served")
        self._tasks[request_id] = task
        try:
            answered = await answer
        except asyncio.CancelledError:
            if not self._was_cancelled(request_id, task):
                raise
            return None
        else:
            # The request may have been cancelled after its last await.
            return None if self._cancelled and self._was_cancelled(request_id, task) else answered
        finally:
            self._tasks.pop(request_id, None)
            self._cancelled.discard(request_id)

    def __contains__(self, request_id: Json) -> bool:
        return isinstance(request_id, str | int) and request_id in self._tasks

    def cancel(self, request_id: Json) -> None:
        """Cancel a request. Unknown ids are ignored."""
        if not isinstance(request_id, str | int) or isinstance(request_id, bool):
            return  # `true` is equal to 1
        task = self._tasks.get(request_id)
        if task is not None and request_id not in self._cancelled:
            self._cancelled.add(request_id)
            task.cancel()

    def _was_cancelled(self, request_id: RequestId, task: asyncio.Task[Json]) -> bool:
        """Return whether only the sender has cancelled the task."""
        return request_id in self._cancelled and task.uncancel() == 0
