"""Tracks the requests of one sender that are being served, so that a notification can cancel one."""

import asyncio
from collections.abc import Coroutine
from typing import TypeVar

from gateway.errors import ErrorCode, RpcError
from gateway.json_types import Json
from gateway.wire.jsonrpc import RequestId

T = TypeVar("T")


class InFlight:
    """The tasks that serve requests, by request id."""

    __slots__ = ("_cancelled", "_tasks")

    def __init__(self) -> None:
        self._tasks: dict[RequestId, asyncio.Task[Json]] = {}
        self._cancelled: set[RequestId] = set()

    def __len__(self) -> int:
        return len(self._tasks)

    async def run(self, request_id: RequestId, answer: Coroutine[Json, Json, T]) -> T | None:
        """Serve a request in the current task.

        Returns:
            Its answer, or None if `cancel` was called meanwhile.

        Raises:
            RpcError: -32600, a request with this id is being served already.
        """
        task = asyncio.current_task()
        if task is None or request_id in self._tasks:
            # Python warns of a coroutine that was made and never awaited.
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
            # Cancelled in the last steps, which waited for nothing more: no answer then, either.
            return None if self._cancelled and self._was_cancelled(request_id, task) else answered
        finally:
            self._tasks.pop(request_id, None)
            self._cancelled.discard(request_id)

    def __contains__(self, request_id: Json) -> bool:
        return isinstance(request_id, str | int) and request_id in self._tasks

    def cancel(self, request_id: Json) -> None:
        """Cancel a request. One that is unknown or has been answered is ignored, as the specification wants."""
        if not isinstance(request_id, str | int) or isinstance(request_id, bool):
            return  # `true` is no id, though it would find the request 1
        task = self._tasks.get(request_id)
        if task is not None and request_id not in self._cancelled:
            self._cancelled.add(request_id)
            task.cancel()

    def _was_cancelled(self, request_id: RequestId, task: asyncio.Task[Json]) -> bool:
        """Tell whether the sender alone cancelled it: a task may be cancelled from several sides at once."""
        return request_id in self._cancelled and task.uncancel() == 0
