"""Keeps calls to upstream servers open while clients answer input requests of the servers.

A legacy server (up to 2025-11-25) sends an input request during a call. A modern client (2026-07-28) expects the input
request as the result `input_required`, and sends its own request again with the response. The open call is parked in
the meantime. The signed `requestState` contains the id of the parked call, and ties the call to the principal and the
request.

A parked call exists only in the process that started it. Threats: calls that are never continued (`MAX_PARKED`,
`PARKED_SECONDS`), and two concurrent retries.
"""

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Coroutine
from datetime import timedelta
from functools import partial
from typing import Final

from gateway.config.models.upstreams import Upstream
from gateway.errors import ErrorCode, ExecutionError, MalformedAnswerError, RpcError
from gateway.executors.invocation import AwaitingInput, Invocation
from gateway.json_types import JsonObject
from gateway.plugin import Context
from gateway.upstreams.client.relayed_call import RelayedCall
from gateway.upstreams.failures import UpstreamError

MAX_PARKED: Final = 1000
PARKED_SECONDS: Final = 120.0
_KEYS: Final = ("upstream.call", "upstream.second_call")
"""`Context.once` records call ids under these names. The second name is for a call that was started again."""
_REMOVED: Final = frozenset({"elicitationId", "task"})


class ParkedCall(RelayedCall):
    def __init__(
        self, invocation: Invocation, config: Upstream, *, upstream: str, call_id: str, ended: Callable[[], object]
    ) -> None:
        """`ended` is called when the call is cancelled or its result has been returned."""
        super().__init__(invocation, config, upstream=upstream)
        self._id: Final = call_id
        self._ended: Final = ended
        self._task: asyncio.Task[JsonObject] | None = None
        self._open: Final[dict[str, tuple[JsonObject, asyncio.Future[JsonObject]]]] = {}
        """The open input requests of the server by key, with the responses of the client."""
        self._changed: Final = asyncio.Event()
        self._expiry: asyncio.TimerHandle | None = None

    @property
    def is_parked(self) -> bool:
        return self._invocation is None

    def start(self, work: Coroutine[object, object, JsonObject]) -> None:
        # A task, because the call outlives the request that started it.
        self._task = asyncio.create_task(work, name="call to an upstream")
        self._task.add_done_callback(lambda _: self._changed.set())

    def attach(self, invocation: Invocation) -> bool:
        """Continue the call for another request. Return False if a different request is using the call."""
        if self._invocation is not None and self._invocation is not invocation:
            return False
        if self._expiry is not None:
            self._expiry.cancel()
        self._invocation = invocation
        return True

    def park(self, seconds: float) -> None:
        """Keep the call open for the client's next request. Cancel the call after `seconds` without a request."""
        self._invocation = None
        self._expiry = asyncio.get_running_loop().call_later(seconds, self.end)

    def end(self) -> None:
        self._ended()
        if self._task is not None:
            self._task.cancel()

    async def close(self) -> None:
        self.end()
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)

    async def result(self, context: Context) -> JsonObject:
        """Relay input requests until the server returns a result. Raise AwaitingInput if the client must retry."""
        task = self._task
        while task is not None and not task.done():
            if self._unanswered:
                await self._ask_client(context)
            else:
                self._changed.clear()
                await self._changed.wait()
        if task is None or task.cancelled():
            raise UpstreamError(_GONE.format(self._upstream))
        return self.with_notes(task.result())

    async def _ask(self, method: str, params: JsonObject) -> JsonObject:
        self._asked += 1
        answer: asyncio.Future[JsonObject] = asyncio.get_running_loop().create_future()
        kept = {name: value for name, value in params.items() if name not in _REMOVED}
        key = f"{self._id}.{self._asked}"
        self._open[key] = {"method": method, "params": kept}, answer
        self._changed.set()
        try:
            return await answer
        finally:
            del self._open[key]

    async def _ask_client(self, context: Context) -> None:
        try:
            answers = await context.ask_inside({key: request for key, (request, _) in self._unanswered.items()})
        except MalformedAnswerError:
            raise
        except (RpcError, ExecutionError) as error:
            failure = error if isinstance(error, RpcError) else RpcError(ErrorCode.INTERNAL_ERROR, str(error))
            for _, answer in self._unanswered.values():
                answer.set_exception(failure)
        else:
            for key, (_, answer) in self._unanswered.items():
                if key in answers:
                    answer.set_result(answers[key])

    @property
    def _unanswered(self) -> dict[str, tuple[JsonObject, "asyncio.Future[JsonObject]"]]:
        return {key: (request, answer) for key, (request, answer) in self._open.items() if not answer.done()}


class ParkedCalls:
    def __init__(self) -> None:
        self._calls: Final[dict[str, ParkedCall]] = {}
        self._process: Final = secrets.token_urlsafe(6)
        """Prefix of all ids, which distinguishes processes."""

    async def request(  # noqa: PLR0913 - the parts of a call
        self,
        invocation: Invocation,
        config: Upstream,
        send: Callable[[RelayedCall], Coroutine[object, object, JsonObject]],
        *,
        upstream: str,
        ask_timeout: timedelta,
        is_repeatable: bool,
    ) -> JsonObject:
        """Start a call, or continue the parked call if the request is a retry.

        Raise AwaitingInput if the client must answer an input request and then retry.
        """

        async def begin() -> str:
            if len(self._calls) >= MAX_PARKED:
                raise UpstreamError(f"{MAX_PARKED} calls are already waiting for responses from clients")
            call_id = f"{self._process}.{secrets.token_urlsafe(16)}"
            ended = partial(self._calls.pop, call_id, None)
            call = ParkedCall(invocation, config, upstream=upstream, call_id=call_id, ended=ended)
            call.start(send(call))
            self._calls[call_id] = call
            return call_id

        call = await self._call_of(invocation, begin, upstream=upstream, is_repeatable=is_repeatable)
        is_parked = False
        try:
            return await call.result(invocation.context)
        except (AwaitingInput, MalformedAnswerError):
            is_parked = True
            raise
        finally:
            if is_parked:
                task_seconds = invocation.call.output_seconds
                longest = PARKED_SECONDS if task_seconds is None else task_seconds
                call.park(min(longest, ask_timeout.total_seconds()))
            else:
                call.end()

    def give_up(self, kept: JsonObject) -> None:
        """Cancel the parked calls of a request. `kept` contains its values from `Context.once`."""
        for key in _KEYS:
            call = self._calls.get(str(kept.get(key, "")))
            if call is not None and call.is_parked:
                call.end()

    async def close(self) -> None:
        await asyncio.gather(*(call.close() for call in [*self._calls.values()]))

    async def _call_of(
        self, invocation: Invocation, begin: Callable[[], Awaitable[str]], *, upstream: str, is_repeatable: bool
    ) -> ParkedCall:
        # If another process parked a repeatable call, the call is started again, once.
        for key in _KEYS:
            call_id = await invocation.context.once(key, begin)
            call = self._calls.get(call_id)
            # Two concurrent retries must not both continue the call.
            if call is not None and call.attach(invocation):
                return call
            if call_id.startswith(self._process):
                raise ExecutionError(_GONE.format(upstream))
            if not is_repeatable:
                break
        raise ExecutionError(_ELSEWHERE.format(upstream))


_GONE: Final = (
    "The call to {} no longer exists: it timed out, was cancelled or was already continued. It may have had effects."
)
_ELSEWHERE: Final = (
    "The call to {} no longer exists: it was started by another replica of the gateway, or before a"
    " restart. It may have had effects. Send all requests of a client to the same replica."
)
