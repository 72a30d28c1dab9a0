"""The calls to upstreams that wait for their clients' answers at this replica, and the way to those at others.

Threats answered here: parked calls without end (`MAX_PARKED`, `PARKED_SECONDS`), and two retries that answer at once.
"""

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Final

import msgspec

from gateway import exact_json
from gateway.background_tasks import BackgroundTasks
from gateway.deadline import Deadline
from gateway.errors import ExecutionError, RpcError, StoreAwayError
from gateway.json_types import JsonObject
from gateway.state.mailbox import Mailbox
from gateway.upstreams.failures import CallGoneError, UpstreamError
from gateway.upstreams.invocation_caller import InvocationCaller
from gateway.upstreams.parked_call import Asked, ParkedCall
from gateway.upstreams.remote_call import KIND, RemoteCall, RemoteRetry, decode_error, encode_error, replica_of

MAX_PARKED: Final = 1000
PARKED_SECONDS: Final = 120.0
"""The longest wait for a client's retry; a task is waited for as long as its question may stay open."""
KEY: Final = "upstream.call"
"""Under which a request keeps the id of its call."""


class ParkedCalls:
    """All calls that may be parked, by id."""

    def __init__(self, mailbox: Mailbox | None = None) -> None:
        """`mailbox`: the way to other replicas; None: there are none."""
        self._calls: Final[dict[str, ParkedCall]] = {}
        self._mailbox: Final = mailbox
        self._background: Final = BackgroundTasks()
        if mailbox is not None:
            mailbox.on(KIND, self._go_on_for_another)

    def __len__(self) -> int:
        return len(self._calls)

    def begin(self, first: InvocationCaller, work: Callable[[ParkedCall], Awaitable[JsonObject]]) -> ParkedCall:
        """Begin a call.

        Raises:
            UpstreamError: too many are open.
        """
        if len(self._calls) >= MAX_PARKED:
            raise UpstreamError(f"more than {MAX_PARKED} calls wait for their clients' answers")
        own = "" if self._mailbox is None else f"{self._mailbox.replica}."
        call_id = f"{own}{secrets.token_urlsafe(16)}"
        call = ParkedCall(first, call_id, forget=partial(self._calls.pop, call_id, None))
        # A task of its own: the call goes on after the request that began it has ended with a question.
        call.task = asyncio.create_task(call.run(lambda: work(call)), name="call to an upstream")
        self._calls[call.id] = call
        return call

    def attach(
        self, call_id: str, caller: InvocationCaller, deadline: Deadline, *, park_seconds: float
    ) -> ParkedCall | RemoteCall:
        """Take up a parked call.

        Raises:
            CallGoneError: it is gone, or another request serves it.
        """
        if self._mailbox is None or not self._is_elsewhere(call_id):
            return self._attach(call_id, caller)
        end_there = partial(self._end_there, call_id)
        return RemoteCall(call_id, self._mailbox, deadline, park_seconds=park_seconds, end_there=end_there)

    def give_up(self, kept: JsonObject) -> None:
        """End the call that waits for an answer, if it is among what its request has kept: nobody will answer."""
        call_id = str(kept.get(KEY, ""))
        call = self._calls.get(call_id)
        if call is not None and call.is_parked:
            call.end()
        elif self._is_elsewhere(call_id):
            self._end_there(call_id)

    async def close(self) -> None:
        await self._background.cancel()
        calls = [*self._calls.values()]
        for call in calls:
            call.end()
        await asyncio.gather(*(call.task for call in calls), return_exceptions=True)

    def _attach(self, call_id: str, caller: InvocationCaller | None) -> ParkedCall:
        call = self._calls.get(call_id)
        # Two retries at once: the second one must not answer what the first is answering.
        if call is None or not call.is_parked:
            raise CallGoneError
        call.attach(caller)
        return call

    def _is_elsewhere(self, call_id: str) -> bool:
        return self._mailbox is not None and replica_of(call_id) not in {"", self._mailbox.replica}

    def _end_there(self, call_id: str) -> None:
        self._background.begin(self._tell_end(call_id), name="end a call at another replica")

    async def _tell_end(self, call_id: str) -> None:
        if self._mailbox is not None:
            with suppress(StoreAwayError):  # it expires there
                await self._mailbox.tell(replica_of(call_id), KIND, RemoteRetry(call=call_id, has_ended=True).encoded)

    async def _go_on_for_another(self, body: bytes) -> bytes:
        """Serve a request at another replica; the reply is empty if the call is gone."""
        retry = msgspec.convert(exact_json.loads(body), RemoteRetry)
        if retry.has_ended:
            if (ended := self._calls.get(retry.call)) is not None:
                ended.end()
            return b""
        try:
            call = self._attach(retry.call, None)
        except CallGoneError:
            return b""
        is_parked = False
        try:
            async with asyncio.timeout(retry.seconds):
                stage = await call.go_on(retry.answers if retry.error is None else decode_error(retry.error))
            is_parked = isinstance(stage, Asked)
            said: JsonObject = {"asked": stage.questions} if isinstance(stage, Asked) else {"result": stage}
        except CallGoneError:
            return b""
        except RpcError as error:
            said = {"error": encode_error(error)}
        except (ExecutionError, TimeoutError) as error:
            said = {"failure": str(error)}
        finally:
            if is_parked:
                call.park(retry.park_seconds)
            else:
                call.end()
        return exact_json.dumps(said)
