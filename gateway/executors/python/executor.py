"""Calls plugin functions: async functions on the event loop, plain functions in a thread.

An exception in a plugin, even `SystemExit`, ends only the current call and is logged with a correlation id. A task that
ignores cancellation, or a stuck thread, continues to run and keeps the concurrency permit of the call.
"""

import asyncio
import inspect
import math
import threading
from collections.abc import Awaitable, Callable
from typing import Final, NoReturn, TypeVar

import msgspec
import structlog

from gateway.config.models.backends import PythonCall
from gateway.deadline import DeadlineExceededError
from gateway.errors import (
    ExecutionError,
    InsufficientScopeError,
    MalformedAnswerError,
    MissingCapabilityError,
    ResourceError,
)
from gateway.executors.invocation import AwaitingInput, Explanation, Invocation, Outcome
from gateway.executors.python.blocking_context import BlockingContext
from gateway.executors.python.results import outcome_of, plain_json, valid_text
from gateway.executors.python.signature import Signature
from gateway.json_types import Json, JsonObject
from gateway.language.files.file_argument import with_files_replaced
from gateway.language.scope import Scope
from gateway.language.templates.caller import use_all_facts
from gateway.plugin import ProtocolError, ToolError
from gateway.telemetry.trace import CURRENT
from gateway.threads import DaemonThreadPool

T = TypeVar("T")

log: Final = structlog.get_logger(__name__)


def compile_python(
    config: PythonCall, signature: Signature, *, scope: Scope, threads: DaemonThreadPool, every_input: bool = True
) -> "PythonExecutor":
    """Compile a call of a function, and report inputs that the function does not accept.

    With `every_input`, each input must be a parameter. Otherwise, inputs without a parameter are not passed.
    """
    signature.check(scope.inputs, scope.problems, every_input=every_input)
    scope.use_all()
    if signature.context_parameter is not None:
        use_all_facts(scope)  # `context.caller` contains all facts
    return PythonExecutor(
        signature=signature,
        place=scope.problems.path,
        threads=threads,
        timeout=config.timeout.total_seconds() if config.timeout else None,
        has_files=scope.inputs.has_files,
    )


class PythonExecutor(msgspec.Struct, frozen=True, kw_only=True):
    signature: Signature
    place: str
    threads: DaemonThreadPool
    timeout: float | None = None
    """A time limit in seconds, in addition to the invocation's deadline."""
    has_files: bool = False

    async def execute(self, invocation: Invocation) -> Outcome:
        return await self.call(invocation, convert=outcome_of)

    def explain(self, invocation: Invocation) -> Explanation:
        bound = self.signature.bind(self._arguments(invocation), invocation.context)
        if self.signature.context_parameter is not None:
            del bound[self.signature.context_parameter]
        facts: dict[str, Json] = {
            "function": self.signature.name,
            "file": inspect.getsourcefile(inspect.unwrap(self.signature.function)),
            "arguments": {name: self._shown(name, value, invocation) for name, value in bound.items()},
            "runs": "on the event loop" if self.signature.is_async else "in a thread",
            "timeout_seconds": self.timeout,
        }
        return Explanation(does="calls a function", facts=facts)

    async def call(self, invocation: Invocation, *, convert: Callable[[object], T]) -> T:
        """Call the function and convert its result. `convert` runs in the same thread as the function.

        Raises:
            ExecutionError: the function failed or exceeded its deadline, or `convert` raised this error.
            RpcError: the function raised this error.
        """
        call = self._on_loop if self.signature.is_async else self._in_thread
        facts = {"code.function.name": self.signature.name}
        with invocation.trace.step("python", kind="internal", facts=facts):
            attempt = await call(invocation, convert)
            if isinstance(attempt, BaseException):
                self._fail(attempt, invocation.call.id)
            return attempt

    def _arguments(self, invocation: Invocation) -> JsonObject:
        if not self.has_files:
            return invocation.arguments
        arguments: JsonObject = with_files_replaced(invocation.arguments, lambda file: file.data)
        return arguments

    def _shown(self, name: str, value: object, invocation: Invocation) -> str:
        given = invocation.arguments.get(name)
        is_shown = not self.has_files or given is None
        return repr(value if is_shown else with_files_replaced(given, dict))

    async def _on_loop(self, invocation: Invocation, convert: Callable[[object], T]) -> T | BaseException:
        async def attempted() -> T | BaseException:
            CURRENT.set(invocation.trace)  # for this task and its child tasks
            try:
                bound = self.signature.bind(self._arguments(invocation), invocation.context)
                returning: Awaitable[object] = self.signature.function(**bound)
                return convert(await returning)
            except BaseException as error:  # noqa: BLE001 - Boundary: plugins can raise anything
                # Return the error, because SystemExit and KeyboardInterrupt would stop the event loop.
                return error

        task = asyncio.create_task(attempted(), name=f"plugin {self.signature.name}")
        try:
            async with invocation.deadline.limit(self.signature.name, self.timeout):
                # `await task` would exceed the deadline if the plugin ignores its cancellation.
                await asyncio.wait({task})
            return task.result()
        finally:
            if not task.done():
                task.cancel()
                invocation.permit.hold_until_done(self.threads.track_orphan(task))

    async def _in_thread(self, invocation: Invocation, convert: Callable[[object], T]) -> T | BaseException:
        context = BlockingContext(invocation.context, asyncio.get_running_loop())
        has_begun = threading.Event()

        def attempted() -> T | BaseException:
            has_begun.set()
            try:
                bound = self.signature.bind(self._arguments(invocation), context)
                return convert(self.signature.function(**bound))
            except BaseException as error:  # noqa: BLE001 - Boundary: plugins can raise anything
                return error

        try:
            async with invocation.deadline.limit(self.signature.name, self.timeout):
                # `limit` enforces the deadline and extends it while the call waits for input.
                return await self.threads.run(attempted, deadline=math.inf, on_stuck=invocation.permit.hold_until_done)
        except DeadlineExceededError:
            if has_begun.is_set():
                raise
            raise ExecutionError(
                f"{self.signature.name} was not started: all plugin threads were busy until its deadline"
                " (limits.threads)"
            ) from None
        finally:
            context.end()

    def _fail(self, error: BaseException, call_id: str) -> NoReturn:
        match error:
            case ResourceError(explanation=explanation):
                raise ExecutionError(explanation)  # the caller did not ask for this resource
            case ProtocolError(code=int(code), message=str(message), data=data) if abs(code) < 2**31:
                # Copy the error with valid values, because a plugin can put anything into its own exception.
                raise ProtocolError(code, valid_text(message), plain_json(data)) from error
            case ToolError():
                raise ToolError(valid_text(str(error))) from error
            case ExecutionError() | AwaitingInput():
                raise error
            case InsufficientScopeError() | MissingCapabilityError() | MalformedAnswerError():
                raise error  # the caller can fix these errors
            case BaseExceptionGroup() if error.subgroup(AwaitingInput) is not None:  # from a task group of the plugin
                raise AwaitingInput from None
        facts = {"plugin": self.signature.name, "place": self.place, "correlation_id": call_id}
        log.error("plugin raised", **facts, exc_info=error)
        # The error can contain secrets and paths, so the caller receives only a correlation id.
        raise ExecutionError(f"{self.signature.name} failed; correlation id {call_id}") from None
