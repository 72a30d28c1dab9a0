"""One run of a tool whose call is a task, or may become one: its exchange, its progress, where it asks, how it ends."""

import math
from collections.abc import Callable
from typing import Final

import structlog

from gateway.catalog.primitives import Tool
from gateway.control_characters import visible
from gateway.errors import ErrorCode, ExecutionError, OverLimitError, RpcError
from gateway.executors.invocation import AwaitingInput, ToolResult
from gateway.json_types import Json, JsonObject
from gateway.plugin import Task as TaskFacts
from gateway.protocol import results
from gateway.protocol.call.call import Call
from gateway.protocol.call.progress import ProgressReporter
from gateway.protocol.call.send_queue import Send
from gateway.protocol.call.tool_run import run_tool
from gateway.protocol.exchange import Caller, Exchange
from gateway.protocol.input_requests.requester import Where
from gateway.protocol.tasks.task_requester import TaskRequester
from gateway.tasks.task import Ending, TaskRun, TaskStatus
from gateway.wire import jsonrpc

log: Final = structlog.get_logger(__name__)

_MAX_MESSAGE_LENGTH: Final = 1000
"""Characters of a status message."""


class TaskCall:
    """The state that a run and whoever answers its request share. Implements `Exchange` for the run."""

    def __init__(
        self, caller: Caller, *, clock: Callable[[], float], ttl_ms: int, asks_before: bool, run: TaskRun | None = None
    ) -> None:
        """Begin with an open request, or if there is a task already without one."""
        self.caller: Final = caller
        self.is_rerun: Final = run is not None
        """Whether its request was answered long ago."""
        self.run = run
        """The task, once it is written down."""
        self.may_be_stored = False
        """Whether a record of it was sent to the store, and not refused there."""
        self.can_be_task = True
        """False if none can be made: all questions are answered with the request."""
        self.is_request_open = run is None
        self.exchange: Exchange | None = None
        self.progress: ProgressReporter | None = None
        """Of the request, as long as it is open."""
        self.message = ""
        """What was reported last."""
        self.result: JsonObject | None = None
        self.error: Exception | None = None
        """How the tool ended: with one of the two."""
        self.made_requester: TaskRequester | None = None
        """The requester, if the tool has asked or has kept a result."""
        self.make_requester: Callable[[], TaskRequester]
        self._asks_before: Final = asks_before
        self._clock: Final = clock
        self._ttl_seconds: Final = ttl_ms / 1000
        self._reported = -math.inf

    @property
    def requester(self) -> TaskRequester:
        if self.made_requester is None:
            self.made_requester = self.make_requester()
        return self.made_requester

    @property
    def facts(self) -> TaskFacts | None:
        """The task; None as long as there is none."""
        if self.run is None:
            return None
        task = self.run.task
        return TaskFacts(id=task.id, created_at=task.created, expires_at=task.expires, restarts_left=task.restarts)

    @property
    def seconds_left(self) -> float:
        """Seconds for which the task is still kept."""
        return self._ttl_seconds if self.run is None else max(1.0, self.run.task.expires - self._clock())

    @property
    def is_waiting(self) -> bool:
        """Whether a question is open inside the task."""
        return self.made_requester is not None and self.made_requester.is_waiting

    def asks_before(self, where: Where | None) -> bool:
        if not self.is_request_open:
            return False
        is_wanted = self._asks_before if where is None else where == "before"
        return is_wanted or not self.can_be_task

    def close_request(self) -> None:
        """Send nothing more to the client: its request is answered."""
        self.is_request_open = False
        # Let go of, since the work may last for hours: the connection must not be kept in memory as long.
        self.exchange = self.progress = None

    async def send(self, notification: JsonObject) -> bool:
        return self.exchange is not None and await self.exchange.send(notification)

    async def close_stream(self, retry_ms: int | None) -> None:
        if self.exchange is not None:
            await self.exchange.close_stream(retry_ms)

    def report(self, value: float, total: float | None, message: str | None) -> Send | None:
        """Take how far it is, for whoever asks for the task, and for the sender of a request that is open."""
        send = None if self.progress is None else self.progress.report(value, total, message)
        if not math.isfinite(value) or value <= self._reported:
            return send
        self._reported = value
        of = "" if total is None or not math.isfinite(total) else f" of {total:g}"
        self.message = (message or f"{value:g}{of}")[:_MAX_MESSAGE_LENGTH]
        if self.run is not None:
            self.run.say(self.message, at=self._clock())
        return send


async def run_work(task_call: TaskCall, call: Call, tool: Tool, arguments: JsonObject) -> Ending:
    """Run the tool once; what became of it is in `task_call`, too, for a request that is still open."""
    try:
        try:
            found = await _result_or_none(call, tool, arguments)
            if found is None:
                return _waiting(task_call)
            result = found
        except OverLimitError as error:
            # Kept: a call that stays an ordinary one is refused with it (`Method.refused`), and told when to come back.
            task_call.error = error
            result = failure_result(call, error)
        except ExecutionError as error:
            result = failure_result(call, error)
    except RpcError as error:
        # A plugin's error may quote a secret, and is written down before anybody else could mask it.
        error.message = call.catalog.sanitizer.text(error.message)
        error.data = call.catalog.sanitizer.json(error.data)
        task_call.error = error
        return failed(error)
    except Exception:  # Boundary: our bug must cost its caller an error, and nobody else anything.
        log.exception("request failed", method=call.method, correlation_id=call.id)
        task_call.error = RpcError(ErrorCode.INTERNAL_ERROR, f"Internal error (correlation id {call.id})")
        return failed(task_call.error)
    task_call.result = results.tool_result(result, call.revision)
    return completed(task_call.result)


def completed(result: JsonObject) -> Ending:
    return Ending(status=TaskStatus.COMPLETED, outcome=jsonrpc.encode({"resultType": "complete", **result}))


def failed(error: RpcError) -> Ending:
    body: dict[str, Json] = {"code": int(error.code), "message": error.message}
    if error.data is not None:
        body["data"] = error.data
    return Ending(
        status=TaskStatus.FAILED, message=visible(error.message, has_lines=False), outcome=jsonrpc.encode(body)
    )


def failure_result(call: Call, error: ExecutionError) -> ToolResult:
    text = call.catalog.sanitizer.text(str(error))
    return ToolResult(content=({"type": "text", "text": text},), is_error=True)


async def _result_or_none(call: Call, tool: Tool, arguments: JsonObject) -> ToolResult | None:
    """The tool's result; None if its client has to answer first."""
    try:
        return await run_tool(call, tool, arguments)
    except AwaitingInput:
        return None


def _waiting(task_call: TaskCall) -> Ending:
    requester = task_call.requester
    return Ending(status=TaskStatus.INPUT_REQUIRED, questions=requester.questions(), memory=requester.memory())
