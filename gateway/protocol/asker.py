"""The seam between a call that has a question and the era that says how questions are asked."""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Protocol, TypeVar

from gateway.json_types import JsonObject
from gateway.protocol.questions import Question

T = TypeVar("T")

Pause = Callable[[], AbstractAsyncContextManager[None]]
"""Stops the call's clock and lends its place to others while a question is open."""


class Asker(Protocol):
    """One call's way to its client."""

    async def ask(
        self, questions: Mapping[str, Question], *, pause: Pause, proven: bool = False
    ) -> Mapping[str, JsonObject]:
        """The answers, by key, each checked against its question.

        `proven`: an answer counts only with proof that this server asked this very call, and counts once.

        Raises:
            MissingCapabilityError: the client did not declare that it can be asked.
            MalformedAnswerError: an answer is none to its question (modern).
            ExecutionError: the client refused, did not answer in time, or answered something else (legacy); the call
                has asked too much; its keys are not one for each question.
            AwaitingInput: the answers are still to come (modern).
        """

    async def once(self, key: str, function: Callable[[], Awaitable[T]]) -> T:
        """What `function` returned when it first ran for this call, however often the call is tried."""
