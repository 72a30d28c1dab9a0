"""A call to an upstream that outlives the requests of its client: it waits for answers between them."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import msgspec

from gateway.errors import RpcError
from gateway.json_types import Json, JsonObject
from gateway.upstreams.failures import CallGoneError
from gateway.upstreams.invocation_caller import InvocationCaller

Answers = Mapping[str, JsonObject] | RpcError
"""What a client answered, by the key of each question; an error where it cannot be asked."""


class Asked(msgspec.Struct, frozen=True):
    """Questions of an upstream in a call: `{"method": …, "params": …}`, by key."""

    questions: Mapping[str, JsonObject]


class _OpenQuestion(msgspec.Struct):
    key: str
    method: str
    params: JsonObject
    answer: "asyncio.Future[JsonObject]"


class ParkedCall:
    """One call to an upstream that outlives the requests of its client.

    It is the `Caller` of its own request: what the upstream says goes to whichever request of its client is served now.
    """

    def __init__(self, first: InvocationCaller, call_id: str, *, forget: Callable[[], object]) -> None:
        self.id: Final = call_id
        self.task: asyncio.Task[JsonObject]
        self.is_parked = False
        """Whether no request is served now."""
        self._caller: InvocationCaller | None = first
        """The one whose request is served here; it may be served at another replica."""
        self._forget: Final = forget
        self._open: Final[list[_OpenQuestion]] = []
        self._news: Final = asyncio.Event()
        self._expiry: asyncio.TimerHandle | None = None
        # Copied: the request that began the call is gone when a later one serves it.
        self.key: Final = first.key
        self.capabilities: Final = first.capabilities
        self.announce: Final = None  # a modern client, whose revision has no such notifications
        self.declared: Final = first.declared
        self.subject: Final = first.subject
        self.log_level: Final = first.log_level
        self.wants_progress: Final = first.wants_progress
        self.fields: Final = first.fields
        self.meta: Final = first.meta
        self.declined: Final = first.declined
        self._asked = 0

    async def run(self, work: Callable[[], Awaitable[JsonObject]]) -> JsonObject:
        try:
            return await work()
        finally:
            # Set at the end, too: `go_on` waits for a question or for that.
            self._news.set()

    def attach(self, caller: InvocationCaller | None) -> None:
        """Serve a request from now on; None: one of another replica."""
        if self._expiry is not None:
            self._expiry.cancel()
        self.is_parked = False
        self._caller = caller

    async def go_on(self, answers: Answers) -> JsonObject | Asked:
        """Answer the upstream, and return its result or what it asks before that.

        Raises:
            CallGoneError: it was ended meanwhile.
            RpcError: the upstream's own error.
            UpstreamError: it could not do it.
        """
        for question in self._unanswered:
            if isinstance(answers, RpcError):
                question.answer.set_exception(answers)
            elif question.key in answers:
                question.answer.set_result(answers[question.key])
        while not self.task.done():
            if asked := self._unanswered:
                return Asked({each.key: {"method": each.method, "params": each.params} for each in asked})
            self._news.clear()
            await self._news.wait()
        if self.task.cancelled():
            raise CallGoneError
        return self.task.result()

    def park(self, seconds: float) -> None:
        """Wait for the client, no longer than this."""
        self.is_parked = True
        self._caller = None
        # A client that never comes back must not hold a call, and its session with the upstream, for ever.
        self._expiry = asyncio.get_running_loop().call_later(seconds, self.end)

    def end(self) -> None:
        """Cancel the work, if it still runs, and be forgotten."""
        self._forget()
        self.task.cancel()

    async def ask(self, method: str, params: JsonObject) -> JsonObject:
        self._asked += 1
        answer: asyncio.Future[JsonObject] = asyncio.get_running_loop().create_future()
        question = _OpenQuestion(f"{self.id}.{self._asked}", method, params, answer)
        self._open.append(question)
        self._news.set()
        try:
            return await answer
        finally:
            self._open.remove(question)

    async def progress(self, value: float, total: float | None, message: str | None) -> None:
        if self._caller is not None:
            await self._caller.progress(value, total, message)

    async def log(self, level: str, data: Json, logger: str | None) -> None:
        if self._caller is not None:
            await self._caller.log(level, data, logger)

    @property
    def _unanswered(self) -> list[_OpenQuestion]:
        return [each for each in self._open if not each.answer.done()]
