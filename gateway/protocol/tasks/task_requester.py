"""Requests input for a call that is a task, or may become one.

While its request is open, a question may be answered with it, as for any modern call (`MrtrRequester`). Inside a task a
question ends the run: the task waits for `tasks/update`, and then the function runs again with the answers.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

from gateway import exact_json
from gateway.errors import ExecutionError
from gateway.executors.invocation import AwaitingInput
from gateway.json_types import Json, JsonObject
from gateway.protocol.call.call import Call
from gateway.protocol.call.input_requests.budget import CallBudget
from gateway.protocol.call.input_requests.mrtr_requester import MrtrRequester
from gateway.protocol.call.input_requests.requester import Suspension, Where
from gateway.protocol.call.input_requests.requests import InputRequest
from gateway.tasks.task import TaskMemory, encode_memory
from gateway.wire import jsonrpc

MAX_MEMORY_BYTES: Final = 2**20
"""Of what a task that waits has been answered and has kept."""


class TaskRequester:
    """One run's way to its client."""

    def __init__(
        self,
        call: Call,
        *,
        definition: str,
        memory: TaskMemory,
        asks_before: Callable[[Where | None], bool],
        is_first: bool,
    ) -> None:
        """Ask nothing yet.

        Args:
            call: the request.
            definition: the version of the tool; answers to another version are asked for again.
            memory: what earlier runs have learned.
            asks_before: tells whether a question is to be answered with the request.
            is_first: whether the request is open, so that it may be answered with questions.
        """
        is_same = not memory.definition or memory.definition == definition
        self._call: Final = call
        self._asks_before: Final = asks_before
        self._definition: Final = definition
        # ext-tasks, "Task Update Requests": a key stands for one question in all of a task's life.
        self._round: Final = memory.round if is_same else memory.round + 1
        self._answers: Final[dict[str, JsonObject]] = dict(memory.answers) if is_same else {}
        self._mrtr: Final = MrtrRequester(call, definition=definition) if is_first else None
        # One for both: what is asked with the request and what is asked inside count together.
        self.budget: Final = CallBudget(call) if self._mrtr is None else self._mrtr.budget
        if is_same:
            self.budget.results.update(memory.results)
        self._open: Final[dict[str, InputRequest]] = {}

    async def close(self, error: BaseException | None) -> None:
        """Raises: AwaitingInput: a question is open; with a result, if the request is to be answered with it."""
        if self._mrtr is not None:
            await self._mrtr.close(error)
        if self._open and not isinstance(error, asyncio.CancelledError):
            raise AwaitingInput from None

    async def request(
        self,
        questions: Mapping[str, InputRequest],
        *,
        pause: Suspension,
        proven: bool = False,
        where: Where | None = None,
    ) -> Mapping[str, JsonObject]:
        entered = self.budget.register(questions)
        new = {key: question for key, question in entered.items() if key not in self._answers}
        if new and self._mrtr is not None and self._asks_before(where):
            self._answers.update(await self._mrtr.request(new, pause=pause, proven=proven))
        elif new:
            await self.budget.open(new, beside=self._open)
            raise AwaitingInput
        return {key: self._answers[key] for key in questions}

    @property
    def is_asking_before(self) -> bool:
        """Whether the request must be answered with questions."""
        return self._mrtr is not None and self._mrtr.is_asking

    def questions(self) -> bytes:
        """The open questions of the task, by the key that the client sees."""
        prefix = key_prefix(self._round)
        return jsonrpc.encode({f"{prefix}{key}": question.wire for key, question in self._open.items()})

    def memory(self) -> bytes:
        """The memory of the next run, encoded.

        Raises:
            ExecutionError: it is too much.
        """
        memory = TaskMemory(
            answers=dict(self._answers),
            results=dict(self.budget.results),
            definition=self._definition,
            round=self._round,
        )
        encoded = encode_memory(memory)
        if len(encoded) > MAX_MEMORY_BYTES:
            raise ExecutionError(f"What was answered so far is more than {MAX_MEMORY_BYTES} bytes, and cannot be kept")
        return encoded

    @property
    def has_memory(self) -> bool:
        """Whether there is anything that the next run has to know."""
        return bool(self._answers or self.budget.results)

    @property
    def is_waiting(self) -> bool:
        """Whether a question is open inside the task."""
        return bool(self._open)

    def answer_with_questions(self) -> JsonObject:
        """`InputRequiredResult` with all open questions, for a request that no task is made of.

        Raises:
            ExecutionError: it would be too large.
        """
        if self._mrtr is None:
            raise RuntimeError("the request is not open")
        return self._mrtr.result_with(self._open)


def key_prefix(asked_again: int) -> str:
    """The prefix of an author's keys when everything is asked again: no key may have two questions."""
    return f"mcp-gateway.{asked_again + 1}:" if asked_again else ""


def open_questions(encoded: bytes) -> dict[str, InputRequest]:
    """The questions of a task's record, by the key that the client sees."""
    found: dict[str, Json] = exact_json.loads(encoded)
    return {key: InputRequest(wire["method"], wire["params"]) for key, wire in found.items()}
