"""Turns tool calls into tasks, and runs the tools of tasks again.

By default, a tool starts as in any call. When the tool first waits, the call becomes a task, which is stored and
returned to the client. `after` and `ask: before` delay this step. With `after`, a call that ends before the delay
returns its result directly. If the task cannot be stored, the call continues as an ordinary call. A `required` task is
stored before the tool starts.
"""

import asyncio
import math
from collections.abc import Callable
from datetime import timedelta
from typing import Final

import structlog
from msgspec.structs import replace

from gateway import exact_json
from gateway.catalog.catalog import Catalog
from gateway.catalog.primitives import Tool
from gateway.config.models.definition_keys import ToolTask
from gateway.control_characters import visible
from gateway.errors import (
    ErrorCode,
    ExecutionError,
    InvalidRetryError,
    MissingCapabilityError,
    NotStoredError,
    OverLimitError,
    RpcError,
    StoreUnavailableError,
    TooManyRequestsError,
)
from gateway.executors.invocation import AwaitingInput, ToolResult
from gateway.json_types import Json, JsonObject
from gateway.plugin import Task as TaskFacts
from gateway.protocol import results
from gateway.protocol.call.call import Call, ServerState, open_call
from gateway.protocol.call.input_requests.requester import Where
from gateway.protocol.call.run import check_access
from gateway.protocol.call.tool_run import error_result, prepared_arguments, run_tool
from gateway.protocol.envelope import Envelope
from gateway.protocol.exchange import Binding, Caller
from gateway.protocol.outbox import Send
from gateway.protocol.tasks import wire
from gateway.protocol.tasks.task_requester import TaskRequester
from gateway.tasks.runner import TaskRunner
from gateway.tasks.task import Ending, Task, TaskCaller, TaskMemory, TaskRun, TaskStatus, decode_memory, ended
from gateway.telemetry.logs import CALL, LOG_CONTEXT, new_id
from gateway.wire import jsonrpc
from gateway.wire.jsonrpc import Request

log: Final = structlog.get_logger(__name__)

ASKS_WITHIN: Final = 1.0
"""With `ask: before`, a call becomes a task after this number of seconds, unless `after` is longer."""
_FIRST_STEPS: Final = 8
"""The number of event loop iterations after which an async tool has usually reached its first wait."""
_ONE_TRY: Final = frozenset({"inputResponses", "requestState"})
_OF_THE_REQUEST: Final = (InvalidRetryError, MissingCapabilityError, StoreUnavailableError)
"""Errors that reject the request, so that no task is created."""
_MILLISECOND: Final = timedelta(milliseconds=1)
_MAX_MESSAGE_LENGTH: Final = 1000


class TaskCall:
    """One run of a tool for a task. Progress and log messages are sent only while the original request is open."""

    def __init__(
        self, caller: Caller, tool: Tool, tasks: TaskRunner, *, request: Call | None = None, run: TaskRun | None = None
    ) -> None:
        """Pass the open `request` for the first run, or `run` for a later run of an existing task."""
        self.caller: Final = caller
        self.is_rerun: Final = run is not None
        self._tool: Final = tool
        self._tasks: Final = tasks
        self._run = run
        self._may_be_stored = False
        """Whether the store may contain the task."""
        self._can_be_task = True
        """False after the store has refused the task. From then on, all input requests belong to the call."""
        self._is_request_open = request is not None
        self._exchange = None if request is None else request.exchange
        self._progress = None if request is None else request.progress
        self._ttl_ms: Final = 0 if request is None or tool.task is None else _ttl_ms(tool.task, request)
        self._message = ""
        self._result: JsonObject | None = None
        self._error: Exception | None = None
        self._requester: TaskRequester | None = None
        """None until the tool sends an input request or uses `once`."""
        self._has_ended = False
        self._reported = -math.inf

    def attached_to(self, call: Call) -> Call:
        return replace(call, exchange=self, progress=self, seconds_left=self._seconds_left)

    def open_requester(self, call: Call, *, definition: str) -> TaskRequester:
        if self._requester is None:
            self._requester = TaskRequester(
                call,
                definition=definition,
                memory=TaskMemory() if self._run is None else decode_memory(self._run.task.memory),
                asks_before=self._asks_before,
            )
        return self._requester

    @property
    def facts(self) -> TaskFacts | None:
        if self._run is None:
            return None
        task = self._run.task
        return TaskFacts(id=task.id, created_at=task.created, expires_at=task.expires, restarts_left=task.restarts)

    def _seconds_left(self) -> float:
        return self._ttl_ms / 1000 if self._run is None else max(1.0, self._run.task.expires - self._tasks.clock())

    async def send(self, notification: JsonObject) -> bool:
        return self._exchange is not None and await self._exchange.send(notification)

    async def close_stream(self, retry_ms: int | None) -> None:
        if self._exchange is not None:
            await self._exchange.close_stream(retry_ms)

    def report(self, value: float, total: float | None, message: str | None) -> Send | None:
        """Record the progress of the task. While the request is open, also report the progress to the client."""
        send = None if self._progress is None else self._progress.report(value, total, message)
        if not math.isfinite(value) or value <= self._reported:
            return send
        self._reported = value
        of = "" if total is None or not math.isfinite(total) else f" of {total:g}"
        self._message = (message or f"{value:g}{of}")[:_MAX_MESSAGE_LENGTH]
        if self._run is not None:
            self._run.say(self._message, at=self._tasks.clock())
        return send

    async def work(self, call: Call, arguments: JsonObject) -> Ending:
        try:
            return await self._ending(call, arguments)
        finally:
            self._has_ended = True
            self._release()

    async def _ending(self, call: Call, arguments: JsonObject) -> Ending:
        try:
            try:
                outcome = await self._outcome(call, arguments)
                if isinstance(outcome, Ending):
                    return outcome
                result = outcome
            except ExecutionError as error:
                if isinstance(error, OverLimitError):
                    self._error = error  # `Method.refused` handles the error if the call does not become a task.
                result = error_result(call, str(error))
        except RpcError as error:
            # Mask secrets here, because the error is stored.
            self._error = error.masked(call.catalog.sanitizer.text, call.catalog.sanitizer.json)
            return failed(error)
        except Exception:  # Boundary: a bug must only fail this call.
            log.exception("request failed", method=call.method, correlation_id=call.id)
            bug = self._error = RpcError(ErrorCode.INTERNAL_ERROR, f"Internal error (correlation id {call.id})")
            return failed(bug)
        self._result = results.tool_result(result, call.revision)
        return completed(self._result)

    async def _outcome(self, call: Call, arguments: JsonObject) -> ToolResult | Ending:
        try:
            return await run_tool(call, self._tool, arguments, self)
        except AwaitingInput:
            requester = self.open_requester(call, definition=self._tool.version)
            return Ending(status=TaskStatus.INPUT_REQUIRED, questions=requester.questions(), memory=requester.memory())

    async def answer(self, task_id: str, call: Call, config: ToolTask, arguments: JsonObject) -> JsonObject:
        """Return a task or a result. For the exceptions, see the function `answer` of this module."""
        try:
            if config.mode != "required" or config.ask == "before" or call.has_input_responses:
                return await self._run_then_store(task_id, call, config, arguments)
            task = self._record(task_id, call, config)
            # Set this before the write, because a cancelled write may have succeeded.
            self._may_be_stored = True
            await self._tasks.add(task)
            return await self._run_stored(task, call, arguments)
        except NotStoredError as error:  # tasks that are not required continue as ordinary calls
            self._may_be_stored = False
            raise unavailable(str(error)) from error
        finally:
            if self._is_request_open:  # the client does not know the task
                self._tasks.limiter.release(task_id)
                if self._may_be_stored:
                    await self._tasks.discard(task_id)
            self._close_request()

    async def _run_stored(self, task: Task, call: Call, arguments: JsonObject) -> JsonObject:
        self._run = self._tasks.run_of(task)
        working = self._begin(call, arguments)
        try:
            await _first_steps(working)
            await self._wait_if_asking(working)
            self._check_request()
        # Abandon the work also if the request is cancelled, because the client does not know the task.
        except BaseException:
            self._tasks.abandon(working)
            raise
        return self._answered(self._run, working)

    async def _run_then_store(self, task_id: str, call: Call, config: ToolTask, arguments: JsonObject) -> JsonObject:
        """Run the tool for some time as an ordinary call. Return a task if the tool has not ended by then."""
        working = self._begin(call, arguments)
        try:
            after = config.after.total_seconds()
            seconds = max(after, ASKS_WITHIN) if config.ask == "before" else after
            if seconds:
                await asyncio.wait({working}, timeout=seconds)
            else:
                await _first_steps(working)
            await self._wait_if_asking(working)
            self._check_request()
            requester = self._requester
            if working.done() and config.after and (requester is None or not requester.is_waiting):
                return self._direct()
            self._is_request_open = False  # later input requests belong to the task
            task = self._record(task_id, call, config)
            if working.done():
                task = ended(task, working.result())  # stored only once
            elif requester is not None and requester.has_memory:
                task = replace(task, memory=requester.memory())
            try:
                self._may_be_stored = True
                await self._tasks.add(task)
            except NotStoredError:
                self._is_request_open, self._may_be_stored = True, False
                if config.mode == "required":
                    raise
                # Continue as an ordinary call.
                self._can_be_task = False
                await asyncio.wait({working})
                return self._direct()
        except BaseException:
            # With this flag, `answer` discards the stored task.
            self._is_request_open = True
            self._tasks.abandon(working)
            raise
        if task.status is not TaskStatus.WORKING:
            self._close_request()
            return wire.created(task, now=self._tasks.clock())
        self._run = self._tasks.run_of(task)
        return self._answered(self._run, working)

    def _begin(self, call: Call, arguments: JsonObject) -> asyncio.Task[Ending]:
        return asyncio.create_task(self.work(self.attached_to(call), arguments), name=f"task of {self._tool.name}")

    def _answered(self, run: TaskRun, working: asyncio.Task[Ending]) -> JsonObject:
        self._close_request()
        self._tasks.follow(run, working)
        return wire.created(run.task, now=self._tasks.clock())

    def _close_request(self) -> None:
        self._is_request_open = False
        # Drop the connection, because the work may take hours and must not keep the connection in memory.
        self._exchange = self._progress = None
        self._release()

    def _release(self) -> None:
        if self._has_ended and self._exchange is None:
            self._requester = self._error = None

    def _asks_before(self, where: Where | None) -> bool:
        if not self._is_request_open:
            return False
        wanted = self._tool.task.ask if where is None and self._tool.task is not None else where
        return wanted == "before" or not self._can_be_task

    async def _wait_if_asking(self, working: asyncio.Task[Ending]) -> None:
        if (requester := self._requester) is not None and requester.is_asking_before:
            # Wait until the run has ended, so that concurrent requests are sent together.
            await asyncio.wait({working})
            raise AwaitingInput(requester.answer_with_questions())

    def _check_request(self) -> None:
        if isinstance(self._error, _OF_THE_REQUEST):
            raise self._error

    def _direct(self) -> JsonObject:
        """Return the result of a call that did not become a task, or raise its error."""
        if self._error is not None:
            raise self._error
        if self._result is None:
            assert self._requester is not None  # noqa: S101 - otherwise there is a result or an error
            raise AwaitingInput(self._requester.answer_with_questions())
        return self._result

    def _record(self, task_id: str, call: Call, config: ToolTask) -> Task:
        now = self._tasks.clock()
        params = {name: value for name, value in call.params.items() if name not in _ONE_TRY}
        content: JsonObject = {
            "params": params,
            "client": call.terms.client_info,
            "capabilities": call.terms.capabilities,
        }
        return Task(
            id=task_id,
            tool=self._tool.name,
            owner=call.caller.identity.subject_key,
            caller=TaskCaller(
                identity=call.caller.identity,
                binding=call.caller.binding.value,
                address=call.caller.address,
                is_local=call.caller.is_local,
                counted_as=call.caller.rate_limit_key,
                revision=call.revision,
                view=call.caller.view,
            ),
            call=jsonrpc.encode(content),
            created=now,
            updated=now,
            ttl_ms=self._ttl_ms,
            poll_ms=config.poll // _MILLISECOND,
            restarts=config.restart,
            runner=self._tasks.id,
            message=self._message,
        )


async def _first_steps(working: asyncio.Task[Ending]) -> None:
    for _ in range(_FIRST_STEPS):
        if working.done():
            return
        await asyncio.sleep(0)


def completed(result: JsonObject) -> Ending:
    return Ending(status=TaskStatus.COMPLETED, outcome=jsonrpc.encode({"resultType": "complete", **result}))


def failed(error: RpcError) -> Ending:
    body: dict[str, Json] = {"code": int(error.code), "message": error.message}
    if error.data is not None:
        body["data"] = error.data
    return Ending(
        status=TaskStatus.FAILED, message=visible(error.message, has_lines=False), outcome=jsonrpc.encode(body)
    )


def unavailable(problem: str) -> RpcError:
    return RpcError(ErrorCode.INTERNAL_ERROR, f"Cannot create a task: {problem}")


def _ttl_ms(config: ToolTask, call: Call) -> int:
    limits = (config.ttl, call.catalog.limits.tasks.ttl)
    return min(each for each in limits if each is not None) // _MILLISECOND


async def answer(call: Call, tool: Tool, config: ToolTask, arguments: JsonObject) -> JsonObject | None:
    """Return a task or the result of the call. Return None if the tool needs no task and tasks are unavailable.

    Raises:
        RpcError: a required task cannot be created, or the tool raised the error.
        ExecutionError: the tool was not run.
        AwaitingInput: the client must respond to input requests first.
    """
    tasks = call.server.tasks
    if problem := tasks.problem:
        if config.mode == "required":
            raise unavailable(problem)
        return None
    try:
        task_id = tasks.limiter.reserve(call.caller.rate_limit_key, call.catalog.limits.tasks)
    except OverLimitError as error:
        raise TooManyRequestsError(str(error), retry_after=error.retry_after) from error
    return await TaskCall(call.caller, tool, tasks, request=call).answer(task_id, call, config, arguments)


async def rerun(run: TaskRun, server: ServerState, *, catalog_for: Callable[[Caller], Catalog]) -> Ending:
    # The context is never reset, because this function runs in a separate asyncio task.
    LOG_CONTEXT.set({CALL: new_id()})
    task = run.task
    content: JsonObject = exact_json.loads(task.call)
    caller = run.caller
    if not isinstance(caller, Caller):
        caller = Caller(
            binding=Binding(task.caller.binding),
            identity=task.caller.identity,
            address=task.caller.address,
            view=task.caller.view,
            is_proxied=not task.caller.is_local,
        )
    try:
        catalog = catalog_for(caller)
    except RpcError as error:
        return failed(error)
    tool = catalog.tool(task.tool)
    if tool is None:
        return failed(RpcError(ErrorCode.INVALID_PARAMS, "The tool no longer exists"))
    task_call = TaskCall(caller, tool, server.tasks, run=run)
    call = open_call(
        Request(task.id, "tools/call", content["params"]),
        terms=Envelope(task.caller.revision, content["client"], content["capabilities"], log_level=None),
        catalog=catalog,
        exchange=task_call,
        server=server,
    )
    call = task_call.attached_to(call)
    try:
        # Check access again, because the configuration and the caller's scopes may have changed.
        check_access(tool, call)
        arguments = await prepared_arguments(tool, content["params"].get("arguments", {}), call)
    except RpcError as error:
        return failed(error)
    except ExecutionError as error:
        return completed(results.tool_result(error_result(call, str(error)), call.revision))
    return await task_call.work(call, arguments)
