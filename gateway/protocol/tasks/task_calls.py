"""Makes tasks of tool calls, and runs their tools again.

The tool begins as in any call. As soon as it first waits for something the task is written down and answered: by then
it has had the chance to ask what must be known before there is a task. With `after` or `ask: before` it runs on for a
while, and becomes a task if it is not done by then. If the task cannot be written down, it stays an ordinary call.

Where it could not stay one (`required`), the task is written down before the tool begins.
"""

import asyncio
from collections.abc import Callable
from copy import copy
from typing import Final

import structlog
from msgspec.structs import replace

from gateway import exact_json
from gateway.catalog.catalog import Catalog
from gateway.catalog.primitives import TaskRules, Tool
from gateway.errors import (
    ErrorCode,
    ExecutionError,
    InvalidRetryError,
    MissingCapabilityError,
    OverLimitError,
    RpcError,
    StoreAwayError,
    TooManyRequestsError,
)
from gateway.events import Events
from gateway.executors.invocation import AwaitingInput
from gateway.json_types import JsonObject
from gateway.protocol import results
from gateway.protocol.call.call import Call, ServerState, open_call
from gateway.protocol.call.runner import check_access
from gateway.protocol.call.tool_run import prepared_arguments
from gateway.protocol.envelope import Envelope
from gateway.protocol.exchange import Binding, Caller
from gateway.protocol.input_requests.mrtr_requester import brings_answers
from gateway.protocol.tasks import wire
from gateway.protocol.tasks.task_call import TaskCall, completed, failed, failure_result, run_work
from gateway.protocol.tasks.task_requester import TaskRequester
from gateway.tasks.runner import TaskRunner
from gateway.tasks.store import NotStoredError, TaskStore
from gateway.tasks.task import Ending, Task, TaskCaller, TaskMemory, TaskRun, TaskStatus, decode_memory, ended
from gateway.telemetry.log_context import CALL, LOG_CONTEXT, new_id
from gateway.wire import jsonrpc
from gateway.wire.jsonrpc import Request

log: Final = structlog.get_logger(__name__)

ASKS_WITHIN: Final = 1.0
"""Seconds for which a call with `ask: before` may ask before it becomes a task, unless `after` is longer."""
_FIRST_STEPS: Final = 8
"""Turns of the event loop in which an async function comes to its first wait, and what is quick to its end."""
_ONE_TRY: Final = frozenset({"inputResponses", "requestState"})
"""Parameters that belong to one try of a request, and not to the task."""
_OF_THE_REQUEST: Final = (InvalidRetryError, MissingCapabilityError, StoreAwayError)
"""Errors that a request is answered with, as in any call: a task would only say the same later."""
_GONE: Final = "The tool is not on offer any more"


class TaskCalls:
    """Makes tasks of calls, and answers for them; implements the work of `TaskRunner`."""

    def __init__(
        self, store: TaskStore, *, events: Events, clock: Callable[[], float], catalog: Callable[[Caller], Catalog]
    ) -> None:
        """Make nothing yet. `catalog` is what is on offer now to a caller."""
        self.runner: Final = TaskRunner(store, work=self.rerun, events=events, clock=clock)
        self._catalog: Final = catalog
        self._answering: Final[dict[str, Caller]] = {}
        """By task, who has just answered its last question: with a token and header fields, which are not stored."""
        self._server: ServerState

    def serve(self, server: ServerState) -> None:
        """Run tools with this state from now on."""
        self._server = server

    @staticmethod
    def accepts(call: Call, rules: TaskRules) -> bool:
        """Whether a call may become a task, and not only be an ordinary one.

        Raises:
            MissingCapabilityError: it must become one, and its client knows no tasks.
        """
        if wire.declares_tasks(call.client_capabilities, call.revision):
            return True
        if rules.is_required:
            raise wire.missing_extension()
        return False

    async def answer(self, call: Call, tool: Tool, rules: TaskRules, arguments: JsonObject) -> JsonObject | None:
        """Answer a call with a task, or directly; None if none can be made, and it is to be an ordinary call.

        Raises:
            RpcError: a task was to be made, and cannot; or the tool ended so.
            ExecutionError: the tool was not run.
            AwaitingInput: the client has to answer first.
        """
        if problem := self.runner.problem:
            if rules.is_required:
                raise _unavailable(problem)
            return None
        try:
            task_id = self.runner.limiter.reserve(call.caller.rate_limit_key, call.catalog.limits.tasks)
        except OverLimitError as error:
            raise TooManyRequestsError(str(error), retry_after=error.retry_after) from error
        task_call, run_call = self._prepare(call, tool, rules)
        try:
            if not rules.is_required or rules.asks_before or brings_answers(call):
                return await self._run_then_store(task_id, task_call, run_call, tool, rules, arguments=arguments)
            task = self._record(task_id, call, tool, rules)
            # Before the write: if that is cancelled on its way, the record may be there, and nobody was told of it.
            task_call.may_be_stored = True
            await self.runner.add(task)
            return await self._run_stored(task, task_call, run_call, tool, arguments)
        except NotStoredError as error:  # of a required one: any other goes on as an ordinary call
            task_call.may_be_stored = False
            raise _unavailable(str(error)) from error
        finally:
            if task_call.is_request_open:  # nobody was told of a task
                self.runner.limiter.release(task_id)
                if task_call.may_be_stored:
                    await self.runner.discard(task_id)

    async def update(self, task_id: str, take: Callable[[Task], Task | None], caller: Caller) -> None:
        """Give a task the answers that `take` adds to its record, and let it go on once no question is open.

        Args:
            task_id: the task.
            take: the record with the answers; None to leave it as it is.
            caller: who sends them, and in whose name the tool runs again.
        """

        def taking(found: Task) -> Task | None:
            changed = take(found)
            # Before it is stored: the runner begins the work at once. Another answer may be on its way beside this one.
            if changed is not None and changed.status is TaskStatus.WORKING:
                self._answering[task_id] = caller
            return changed

        changed = None
        try:
            changed = await self.runner.answer(task_id, taking)
        finally:
            is_begun = changed is not None and changed.status is TaskStatus.WORKING
            if not is_begun and self._answering.get(task_id) is caller:
                del self._answering[task_id]

    async def rerun(self, run: TaskRun) -> Ending:
        """Run the tool of a task again from its start. The work of `TaskRunner`."""
        # Not set back: this runs in a task of its own, and the context ends with that.
        LOG_CONTEXT.set({CALL: new_id()})
        task = run.task
        content: JsonObject = exact_json.loads(task.call)
        caller = self._answering.pop(task.id, None) or Caller(
            binding=Binding(task.caller.binding),
            identity=task.caller.identity,
            address=task.caller.address,
            view=task.caller.view,
        )
        try:
            catalog = self._catalog(caller)
        except RpcError as error:
            return failed(error)
        tool = catalog.tool(task.tool)
        if tool is None:
            return failed(RpcError(ErrorCode.INVALID_PARAMS, _GONE))
        task_call = TaskCall(caller, clock=self.runner.clock, ttl_ms=task.ttl_ms, asks_before=False, run=run)
        call = open_call(
            Request(task.id, "tools/call", content["params"]),
            terms=Envelope(task.caller.revision, content["client"], content["capabilities"], log_level=None),
            catalog=catalog,
            exchange=task_call,
            server=self._server,
        )
        _attach(task_call, call, tool, decode_memory(task.memory), is_first=False)
        try:
            # Again: the file, and what the caller may do, can have changed since the task was made.
            check_access(tool, call)
            arguments = await prepared_arguments(tool, content["params"].get("arguments", {}), call)
        except RpcError as error:
            return failed(error)
        except ExecutionError as error:
            return completed(results.tool_result(failure_result(call, error), call.revision))
        return await run_work(task_call, call, tool, arguments)

    async def _run_stored(
        self, task: Task, task_call: TaskCall, call: Call, tool: Tool, arguments: JsonObject
    ) -> JsonObject:
        """Begin the work of a task that is written down; answer with the task, or with what comes before it."""
        task_call.run = run = self.runner.run_of(task)
        working = asyncio.create_task(run_work(task_call, call, tool, arguments), name=f"task of {tool.name}")
        try:
            await _first_steps(working)
            await _wait_if_asking(task_call, working)
            _check_request(task_call)
        # A cancellation, too: the request is gone, and with it whoever could ask for the result.
        except BaseException:
            self.runner.abandon(working)
            raise
        return self._answered(task_call, run, working)

    async def _run_then_store(  # noqa: PLR0913 - a call, and its task
        self, task_id: str, task_call: TaskCall, call: Call, tool: Tool, rules: TaskRules, *, arguments: JsonObject
    ) -> JsonObject:
        """Run as in any call for a while; answer with a task if it is not done by then."""
        working = asyncio.create_task(run_work(task_call, call, tool, arguments), name=f"task of {tool.name}")
        try:
            seconds = max(rules.after, ASKS_WITHIN) if rules.asks_before else rules.after
            if seconds:
                await asyncio.wait({working}, timeout=seconds)
            else:
                await _first_steps(working)
            await _wait_if_asking(task_call, working)
            _check_request(task_call)
            if working.done() and rules.after and not task_call.is_waiting:
                return _direct(task_call)
            task_call.is_request_open = False  # what is asked from now on is asked inside
            task = self._record(task_id, call, tool, rules, message=task_call.message)
            if working.done():
                task = ended(task, working.result())  # so that it is written down once
            elif (requester := task_call.made_requester) is not None and requester.has_memory:
                task = replace(task, memory=requester.memory())
            try:
                task_call.may_be_stored = True
                await self.runner.add(task)
            except NotStoredError:
                task_call.is_request_open, task_call.may_be_stored = True, False
                if rules.is_required:
                    raise
                # It goes on as an ordinary call: from here on its questions are answered with the request.
                task_call.can_be_task = False
                await asyncio.wait({working})
                return _direct(task_call)
        except BaseException:
            # `answer` then takes back what was written.
            task_call.is_request_open = True
            self.runner.abandon(working)
            raise
        if task.status is not TaskStatus.WORKING:
            task_call.close_request()
            return wire.created(task, now=self.runner.clock())
        task_call.run = run = self.runner.run_of(task)
        return self._answered(task_call, run, working)

    def _answered(self, task_call: TaskCall, run: TaskRun, working: asyncio.Task[Ending]) -> JsonObject:
        task_call.close_request()
        self.runner.follow(run, working)
        return wire.created(run.task, now=self.runner.clock())

    def _prepare(self, call: Call, tool: Tool, rules: TaskRules) -> tuple[TaskCall, Call]:
        """The call as it runs: what it sends goes out as long as its request is open, and nowhere after that."""
        ttl_ms = _ttl_ms(call, rules)
        task_call = TaskCall(call.caller, clock=self.runner.clock, ttl_ms=ttl_ms, asks_before=rules.asks_before)
        task_call.exchange, task_call.progress = call.exchange, call.progress
        run_call = copy(call)
        run_call.exchange = task_call
        _attach(task_call, run_call, tool, TaskMemory(), is_first=True)
        return task_call, run_call

    def _record(self, task_id: str, call: Call, tool: Tool, rules: TaskRules, *, message: str = "") -> Task:
        now = self.runner.clock()
        params = {name: value for name, value in call.params.items() if name not in _ONE_TRY}
        content: JsonObject = {
            "params": params,
            "client": call.client_info,
            "capabilities": call.client_capabilities,
        }
        return Task(
            id=task_id,
            tool=tool.name,
            owner=call.caller.identity.subject_key,
            caller=TaskCaller(
                identity=call.caller.identity,
                binding=call.caller.binding.value,
                address=call.caller.address,
                counted_as=call.caller.rate_limit_key,
                revision=call.revision,
                view=call.caller.view,
            ),
            call=jsonrpc.encode(content),
            created=now,
            updated=now,
            ttl_ms=_ttl_ms(call, rules),
            poll_ms=rules.poll_ms,
            restarts=rules.restarts,
            runner=self.runner.id,
            message=message,
        )


def _attach(task_call: TaskCall, call: Call, tool: Tool, memory: TaskMemory, *, is_first: bool) -> None:
    """Let a call run as a task's: it asks and reports through the task."""
    call.task = task_call
    call.progress = task_call
    task_call.make_requester = lambda: TaskRequester(
        call, definition=tool.version, memory=memory, asks_before=task_call.asks_before, is_first=is_first
    )


async def _first_steps(working: asyncio.Task[Ending]) -> None:
    """Let the tool come to its first wait."""
    for _ in range(_FIRST_STEPS):
        if working.done():
            return
        await asyncio.sleep(0)


async def _wait_if_asking(task_call: TaskCall, working: asyncio.Task[Ending]) -> None:
    """Raises: AwaitingInput: a question comes before the task."""
    if (requester := task_call.made_requester) is not None and requester.is_asking_before:
        # To the end of the run: questions that are put beside this one go out together with it.
        await asyncio.wait({working})
        raise AwaitingInput(requester.answer_with_questions())


def _check_request(task_call: TaskCall) -> None:
    """Raises: RpcError: the tool was not run, or not to its end, because of what the request lacks or brings."""
    if isinstance(task_call.error, _OF_THE_REQUEST):
        raise task_call.error


def _direct(task_call: TaskCall) -> JsonObject:
    """The answer of an ordinary call.

    Raises:
        RpcError: the tool ended so.
        OverLimitError: the tool was not run.
        AwaitingInput: the client has to answer first.
    """
    if task_call.error is not None:
        raise task_call.error
    if task_call.result is None:
        raise AwaitingInput(task_call.requester.answer_with_questions())
    return task_call.result


def _unavailable(problem: str) -> RpcError:
    return RpcError(ErrorCode.INTERNAL_ERROR, f"No task can be made now: {problem}")


def _ttl_ms(call: Call, rules: TaskRules) -> int:
    longest = call.catalog.limits.tasks.ttl
    return rules.ttl_ms if longest is None else min(rules.ttl_ms, round(longest.total_seconds() * 1000))
