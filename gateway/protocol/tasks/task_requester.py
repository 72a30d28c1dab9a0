"""Sends the input requests of calls that are tasks or may become tasks.

While the original request is open, the call can end with `input_required`. Inside a task, an input request ends the
run, and the tool runs again after `tasks/update`.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

from gateway import exact_json
from gateway.errors import ExecutionError
from gateway.executors.invocation import AwaitingInput
from gateway.json_types import Json, JsonObject
from gateway.protocol.call.call import Call
from gateway.protocol.call.input_requests.mrtr_requester import MrtrRequester
from gateway.protocol.call.input_requests.requester import Suspension, Where
from gateway.tasks.task import TaskMemory, encode_memory
from gateway.wire import jsonrpc
from gateway.wire.input_requests import InputRequest

MAX_MEMORY_BYTES: Final = 2**20


class TaskRequester(MrtrRequester):
    def __init__(
        self, call: Call, *, definition: str, memory: TaskMemory, asks_before: Callable[[Where | None], bool]
    ) -> None:
        """`asks_before` returns whether an input request is sent before the call becomes a task."""
        super().__init__(call, definition=definition)
        is_same = not memory.definition or memory.definition == definition
        self._asks_before: Final = asks_before
        self._definition: Final = definition
        # ext-tasks, "Task Update Requests": keys are unique during the life of a task.
        self._round: Final = memory.round if is_same else memory.round + 1
        if is_same:
            self.answers.update(memory.answers)
            self.results.update(memory.results)
        self._inside: Final[dict[str, InputRequest]] = {}

    async def close(self, error: BaseException | None) -> None:
        """Raise AwaitingInput if an input request is open. Inside a task, the exception contains no result."""
        await super().close(error)
        if self._inside and not isinstance(error, asyncio.CancelledError):
            raise AwaitingInput from None

    async def _ask(
        self, questions: Mapping[str, InputRequest], pause: Suspension, *, proven: bool, where: Where | None
    ) -> None:
        if self._asks_before(where):
            await super()._ask(questions, pause, proven=proven, where=where)
        else:
            await self.open(questions, open_questions=self._inside)
            raise AwaitingInput

    @property
    def is_asking_before(self) -> bool:
        return bool(self._open)

    def questions(self) -> bytes:
        """Return the task's open input requests as encoded JSON, by the keys that the client sees."""
        prefix = key_prefix(self._round)
        return jsonrpc.encode({f"{prefix}{key}": question.wire for key, question in self._inside.items()})

    def memory(self) -> bytes:
        """Return the encoded responses and `once` results for the next run. Raise ExecutionError if too large."""
        memory = TaskMemory(answers=self.answers, results=self.results, definition=self._definition, round=self._round)
        encoded = encode_memory(memory)
        if len(encoded) > MAX_MEMORY_BYTES:
            raise ExecutionError(f"The responses and results so far exceed {MAX_MEMORY_BYTES} bytes")
        return encoded

    @property
    def has_memory(self) -> bool:
        return bool(self.answers or self.results)

    @property
    def is_waiting(self) -> bool:
        return bool(self._inside)

    def answer_with_questions(self) -> JsonObject:
        """Return an `InputRequiredResult` for a call that does not become a task."""
        return self.result_with(self._inside)


def key_prefix(asked_again: int) -> str:
    return f"mcp-gateway.{asked_again + 1}:" if asked_again else ""


def open_questions(encoded: bytes) -> dict[str, InputRequest]:
    found: dict[str, Json] = exact_json.loads(encoded)
    return {key: InputRequest(wire["method"], wire["params"]) for key, wire in found.items()}
