"""The caller of a request to an upstream: the way back to our own client, for what the upstream says meanwhile."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, Protocol

import structlog

from gateway.access.subject import Subject
from gateway.json_types import Json, JsonObject
from gateway.limits.concurrency import ConcurrencyPermit

log: Final = structlog.get_logger(__name__)

MAX_WAITING: Final = 1000
"""Notifications of one call that wait for our client; more are dropped."""


class Caller(Protocol):
    """Our client, as far as one call concerns it."""

    @property
    def key(self) -> str:
        """The owner of the session with the upstream, where each of our clients has its own."""

    @property
    def capabilities(self) -> JsonObject:
        """Its capabilities to be asked, in the shape of ClientCapabilities, as far as the upstream's keys allow."""

    @property
    def declared(self) -> JsonObject:
        """The capabilities of a session that begins for it."""

    @property
    def subject(self) -> Subject:
        """The caller that requests are authenticated as, where the server authenticates callers."""

    @property
    def log_level(self) -> str | None: ...
    @property
    def wants_progress(self) -> bool: ...
    @property
    def fields(self) -> Mapping[str, str]:
        """Header fields of its request that go along."""

    @property
    def meta(self) -> JsonObject:
        """Members of its `_meta` that go along."""

    @property
    def announce(self) -> Callable[[str, JsonObject], object] | None:
        """Queues a notification for it, under a key, also when the call is over; None where it takes none."""

    async def ask(self, method: str, params: JsonObject) -> JsonObject:
        """Put a question of the upstream to it (elicitation, sampling, roots).

        Raises:
            RpcError: it cannot be asked, or refused.
        """

    def declined(self, method: str) -> JsonObject:
        """The answer to a question of a kind that it cannot be asked; it hears of that with its result.

        Raises:
            RpcError: the method has no such answer.
        """

    async def progress(self, value: float, total: float | None, message: str | None) -> None: ...
    async def log(self, level: str, data: Json, logger: str | None) -> None: ...


class OpenCall:
    """One request while it is open: its notifications reach our client one after the other, before its response."""

    def __init__(self, caller: Caller, permit: ConcurrencyPermit | None = None) -> None:
        self.caller: Final = caller
        self._permit: Final = permit
        self._questions = 0
        """How many are open."""
        self._waiting = 0
        self._last: asyncio.Task[None] | None = None

    async def ask(self, method: str, params: JsonObject) -> JsonObject:
        """Put a question of the upstream to our client; until it is answered other calls may run in its place."""
        if self._permit is None:
            return await self.caller.ask(method, params)
        # Its place is free for others while a person thinks: else a few open questions would stop the upstream.
        self._questions += 1
        self._permit.suspend()
        try:
            answer = await self.caller.ask(method, params)
        except BaseException:
            self._questions -= 1
            if not self._questions:
                # Not resume(), which waits for a place: a call that fails or is cancelled must get to its end.
                self._permit.force_resume()
            raise
        self._questions -= 1
        if not self._questions:
            await self._permit.resume()
        return answer

    def pass_on(self, work: Callable[[], Awaitable[None]]) -> None:
        if self._waiting >= MAX_WAITING:
            return
        self._waiting += 1
        self._last = asyncio.create_task(self._after(self._last, work), name="pass on a notification")

    async def finish(self) -> None:
        """Wait until all has been passed on."""
        if self._last is not None:
            # A call that is cancelled here leaves the notifications that have begun to be passed on whole.
            await asyncio.shield(self._last)

    async def _after(self, before: asyncio.Task[None] | None, work: Callable[[], Awaitable[None]]) -> None:
        # One after the other, as the upstream sent them: progress must grow (2025-06-18 basic/utilities/progress).
        if before is not None:
            await asyncio.wait([before])
        try:
            await work()
        except Exception:  # Boundary: what an upstream notifies of must not end the call.
            log.exception("a notification of an upstream was not passed on")
        finally:
            self._waiting -= 1
