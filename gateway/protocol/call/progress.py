"""Sends progress notifications for requests with a progress token (basic/utilities/progress).

Clients commonly time out after 60 seconds without a message, so the last progress of a silent call is sent again.
Progress values must increase, so each repetition adds the smallest possible amount.
"""

import asyncio
import math
from collections.abc import Callable, Coroutine
from datetime import timedelta
from functools import partial
from typing import Any, Final, Protocol

from gateway.json_types import Json, JsonObject
from gateway.protocol.exchange import Exchange
from gateway.protocol.outbox import NotificationCounters, Send
from gateway.wire import downgrade, jsonrpc

REPEAT_AFTER: Final = timedelta(seconds=15)
"""The default time after which progress is sent again. This time is unrelated to `listen.keepalive`."""
_METHOD: Final = "notifications/progress"


class ProgressReporter(Protocol):
    def report(self, value: float, total: float | None, message: str | None) -> Send | None:
        """Record the progress. Return a function that sends the notification, or None if there is nothing to send."""


class Progress:
    def __init__(
        self,
        token: str | int,
        exchange: Exchange,
        *,
        revision: str,
        repeat_after: timedelta,
        counters: NotificationCounters,
    ) -> None:
        self._token: Final = token
        self._exchange: Final = exchange
        self._revision: Final = revision
        self._every: Final = repeat_after.total_seconds()
        self._counters: Final = counters
        self._own = -math.inf
        self._shown = -math.inf
        """The last value that was sent or queued."""
        self._sent = -math.inf
        self._total: float | None = None
        self._heard_at = asyncio.get_running_loop().time()
        self._timer: asyncio.TimerHandle | None = None
        self._beating: asyncio.Task[None] | None = None
        self._is_over = False
        self._look_at(self._heard_at + self._every)

    async def end(self) -> None:
        self._is_over = True
        if self._timer is not None:
            self._timer.cancel()
        if self._beating is not None and not self._beating.done():
            try:
                await asyncio.wait([self._beating])  # wait until the message is completely sent
            except asyncio.CancelledError:
                self._beating.cancel()
                raise

    def report(self, value: float, total: float | None, message: str | None) -> Send | None:
        """Record the progress, but ignore values that do not increase or are not finite."""
        if self._is_over or not math.isfinite(value) or value <= self._own:
            return None
        self._own = value
        self._total = total if total is not None and math.isfinite(total) else None
        return self._show(value if value > self._shown else _just_above(self._shown), message)

    def _show(self, value: float, message: str | None) -> Callable[[], Coroutine[Any, Any, None]]:
        # Set the value before the message is sent, because a concurrent report must be larger.
        self._shown = value
        params: dict[str, Json] = {"progressToken": self._token, "progress": value}
        if self._total is not None:
            params["total"] = self._total
        if message is not None:
            params["message"] = message
        params = downgrade.strip("ProgressParams", params, self._revision)
        return partial(self._send, value, params)

    async def _send(self, value: float, params: JsonObject) -> None:
        if self._is_over:
            return
        self._sent = value
        self._heard_at = asyncio.get_running_loop().time()
        self._counters.sent[_METHOD] += 1
        await self._exchange.send({"jsonrpc": jsonrpc.VERSION, "method": _METHOD, "params": params})

    def _look_at(self, when: float) -> None:
        # A timer is cheaper than a task, and most calls end earlier.
        self._timer = asyncio.get_running_loop().call_at(when, self._look)

    def _look(self) -> None:
        loop = asyncio.get_running_loop()
        due = self._heard_at + self._every
        if loop.time() >= due:
            # Send one repetition at a time for slow clients, and let no repetition overtake a queued report.
            if (self._beating is None or self._beating.done()) and self._sent == self._shown:
                value = 0 if math.isinf(self._shown) else _just_above(self._shown)
                self._beating = loop.create_task(self._show(value, None)(), name="repeated progress")
            due = loop.time() + self._every
        self._look_at(due)


def _just_above(value: float) -> float:
    return math.nextafter(value, math.inf)
