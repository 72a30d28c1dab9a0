"""Calls a plugin's function: on the loop if it is async, in one of our threads if it is not; and answers in time.

A plugin is somebody else's code. Whatever it raises, `SystemExit` too, ends its own call and nothing else; the details
go to the log under a correlation id. Async code that swallows its cancellation is left to run, counted, and keeps its
slot; so does a thread that is stuck.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from secrets import token_hex
from typing import Final, Generic, NoReturn, TypeVar

import structlog

from gateway.config.backends import PythonCall
from gateway.errors import ExecutionError, RpcError
from gateway.executors.blocking_context import BlockingContext
from gateway.executors.invocation import Invocation, Outcome
from gateway.executors.plugin_results import outcome_of
from gateway.executors.scope import Scope
from gateway.executors.signature import Signature
from gateway.executors.threads import NoThreadFreeError, Threads

T = TypeVar("T")

log: Final = structlog.get_logger()


def compile_python(
    config: PythonCall, signature: Signature, *, scope: Scope, threads: Threads, every_input: bool = True
) -> "PythonExecutor":
    """Check that the function can be called with the place's inputs, and make it ready.

    `every_input`: whether each input must be a parameter; what is not one is otherwise left out.
    """
    signature.check(scope.inputs, scope.problems, every_input=every_input)
    scope.use_all()
    return PythonExecutor(
        signature=signature, threads=threads, timeout=config.timeout.total_seconds() if config.timeout else None
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PythonExecutor:
    """Calls one function."""

    signature: Signature
    threads: Threads
    timeout: float | None = None
    """Seconds, beside the invocation's deadline."""

    async def execute(self, invocation: Invocation) -> Outcome:
        """Call the function, and convert what it returns as a tool's or resource's result."""
        return await self.call(invocation, convert=outcome_of)

    async def call(self, invocation: Invocation, *, convert: Callable[[object], T]) -> T:
        """Call the function with the invocation's arguments, and return what `convert` makes of its result.

        `convert` runs where the function ran.

        Raises:
            ExecutionError: the function failed, or had not returned at the deadline, or `convert` raised it.
            RpcError: the function raised it.
        """
        deadline = invocation.deadline
        if self.timeout is not None:
            deadline = min(deadline, asyncio.get_running_loop().time() + self.timeout)
        call = self._on_loop if self.signature.is_async else self._in_thread
        attempt = await call(invocation, convert, deadline)
        if isinstance(attempt, _Raised):
            self._fail(attempt.error)
        return attempt.value

    async def _on_loop(
        self, invocation: Invocation, convert: Callable[[object], T], deadline: float
    ) -> "_Returned[T] | _Raised":
        async def attempted() -> _Returned[T] | _Raised:
            try:
                bound = self.signature.bind(invocation.arguments, invocation.context)
                returning: Awaitable[object] = self.signature.function(**bound)
                return _Returned(convert(await returning))
            except BaseException as error:  # noqa: BLE001 - Boundary: a plugin may raise anything
                return _Raised(error)

        task = asyncio.create_task(attempted(), name=f"plugin {self.signature.name}")
        try:
            await asyncio.wait({task}, timeout=max(0.0, deadline - asyncio.get_running_loop().time()))
            if task.done():
                return task.result()
            raise ExecutionError(self._timed_out())
        finally:
            if not task.done():
                task.cancel()
                invocation.slot.hold_until(self.threads.adopt(task))

    async def _in_thread(
        self, invocation: Invocation, convert: Callable[[object], T], deadline: float
    ) -> "_Returned[T] | _Raised":
        context = BlockingContext(invocation.context, asyncio.get_running_loop())

        def attempted() -> _Returned[T] | _Raised:
            try:
                bound = self.signature.bind(invocation.arguments, context)
                return _Returned(convert(self.signature.function(**bound)))
            except BaseException as error:  # noqa: BLE001 - Boundary: a plugin may raise anything
                return _Raised(error)

        try:
            return await self.threads.run(attempted, deadline=deadline, on_stuck=invocation.slot.hold_until)
        except NoThreadFreeError:
            raise ExecutionError(
                f"{self.signature.name} was not run: all threads were busy until its deadline (limits.threads)"
            ) from None
        except TimeoutError:
            raise ExecutionError(self._timed_out()) from None
        finally:
            context.end()

    def _timed_out(self) -> str:
        return f"{self.signature.name} timed out: it had not returned at its deadline"

    def _fail(self, error: BaseException) -> NoReturn:
        if isinstance(error, ExecutionError | RpcError):
            raise error
        correlation_id = token_hex(8)
        log.error("plugin raised", plugin=self.signature.name, correlation_id=correlation_id, exc_info=error)
        raise ExecutionError(f"{self.signature.name} failed; correlation id {correlation_id}") from None


@dataclass(frozen=True, slots=True)
class _Returned(Generic[T]):
    value: T


@dataclass(frozen=True, slots=True)
class _Raised:
    error: BaseException
