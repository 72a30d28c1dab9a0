"""The requests of one sender that are being served, so that a notification can cancel one."""

import asyncio
from collections.abc import Coroutine

from gateway.errors import ErrorCode, RpcError
from gateway.json_types import Json
from gateway.protocol.exchange import Reply
from gateway.protocol.jsonrpc import RequestId

CANCELLED = Reply(body=None)
"""What a request is answered with that its sender has cancelled: nothing."""


class InFlight:
    """By request id, the task that serves it."""

    __slots__ = ("_cancelled", "_tasks")

    def __init__(self) -> None:
        self._tasks: dict[RequestId, asyncio.Task[Json]] = {}
        self._cancelled: set[RequestId] = set()

    def __len__(self) -> int:
        return len(self._tasks)

    async def run(self, request_id: RequestId, answer: Coroutine[Json, Json, Reply]) -> Reply:
        """Serve a request in the current task.

        Returns:
            Its reply, or `CANCELLED` if `cancel` was called meanwhile.

        Raises:
            RpcError: -32600, a request with this id is being served already.
        """
        task = asyncio.current_task()
        if task is None or request_id in self._tasks:
            answer.close()
            raise RpcError(ErrorCode.INVALID_REQUEST, "A request with this id is already being served")
        self._tasks[request_id] = task
        try:
            reply = await answer
        except asyncio.CancelledError:
            if not self._was_cancelled(request_id, task):
                raise
            return CANCELLED
        else:
            return CANCELLED if self._was_cancelled(request_id, task) else reply
        finally:
            self._tasks.pop(request_id, None)
            self._cancelled.discard(request_id)

    def cancel(self, request_id: Json) -> None:
        """Cancel a request. One that is unknown or has been answered is ignored, as the specification wants."""
        if not isinstance(request_id, str | int) or isinstance(request_id, bool):
            return  # `true` is no id, though it would find the request 1
        task = self._tasks.get(request_id)
        if task is not None and request_id not in self._cancelled:
            self._cancelled.add(request_id)
            task.cancel()

    def _was_cancelled(self, request_id: RequestId, task: asyncio.Task[Json]) -> bool:
        """Whether the sender asked for it, and nobody else: a task may be cancelled from several sides at once."""
        return request_id in self._cancelled and task.uncancel() == 0
