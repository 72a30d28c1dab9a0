"""What a caller hears of a call that the end of the daemon cut short: an error, where the way back is still open."""

import asyncio
from collections.abc import Awaitable
from typing import Final

from gateway.errors import ErrorCode, RpcError
from gateway.protocol import results
from gateway.protocol.exchange import Reply
from gateway.protocol.jsonrpc import Message, Request

_WHY: Final = "The server stopped before this was done"


class LastWords:
    """From `begin` on, a cancelled call is answered. Before that, whoever cancels knows why and hears nothing."""

    def __init__(self) -> None:
        self._is_begun = False

    def begin(self) -> None:
        self._is_begun = True

    async def or_apology(self, answering: Awaitable[Reply], message: Message, *, revision: str | None) -> Reply:
        """The answer, or what there is to say instead of it."""
        try:
            return await answering
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if not self._is_begun or task is None:
                raise
            task.uncancel()  # what follows is written under timeouts, which look at this
            error = RpcError(ErrorCode.INTERNAL_ERROR, _WHY)
            request_id = message.id if isinstance(message, Request) else None
            return results.error_reply(error, request_id=request_id, revision=revision, status=503)
