"""The interface between a call that needs input and the era that defines how input is requested."""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Literal, Protocol, TypeVar

from gateway.json_types import JsonObject
from gateway.protocol.call.input_requests.requests import InputRequest

T = TypeVar("T")

Suspension = Callable[[], AbstractAsyncContextManager[None]]
"""Stops the call's clock and lends its place to others while a question is open."""

Where = Literal["before", "inside"]
"""Of a call that may become a task: where a question is put."""


class KeptResults(Protocol):
    async def once(self, key: str, function: Callable[[], Awaitable[T]]) -> T:
        """Return the result of the first run of `function`; see `gateway.plugin.Context.once`."""


class InputRequester(Protocol):
    """One run's way to its client. It is closed when the run ends."""

    async def request(
        self,
        questions: Mapping[str, InputRequest],
        *,
        pause: Suspension,
        proven: bool = False,
        where: Where | None = None,
    ) -> Mapping[str, JsonObject]:
        """The answers, by key, each checked against its question.

        `proven`: an answer counts only with proof that this server asked this very call, and counts once.
        `where`: for a call that may become a task; None: as the file says.

        Raises:
            MissingCapabilityError: the client did not declare that it can be asked.
            MalformedAnswerError: an answer is none to its question (modern).
            ExecutionError: the client refused, did not answer in time, or answered something else (legacy); the call
                has asked too much; its keys are not one for each question.
            AwaitingInput: the answers are still to come (modern).
        """

    @property
    def budget(self) -> KeptResults:
        """The budget of the call, which also keeps the results of `once`."""

    async def close(self, error: BaseException | None) -> None:
        """End with the run, and with the error that has ended it.

        Raises:
            AwaitingInput: the client has to answer first (modern).
        """
