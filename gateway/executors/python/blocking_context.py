"""Implements `gateway.plugin.SyncContext` for functions that run in a thread.

Each method runs the `Context` method of the same name on the event loop and waits for the result. Once the call has
ended, every method raises ToolError, so that a function that exceeded its deadline stops.
"""

import asyncio
import concurrent.futures
from collections.abc import Awaitable, Callable, Coroutine
from functools import wraps
from operator import attrgetter
from queue import SimpleQueue
from typing import Any, Concatenate, ParamSpec, TypeVar

from gateway.json_types import JsonObject
from gateway.plugin import Caller, Context, Task, ToolError

P = ParamSpec("P")
T = TypeVar("T")


def _blocking(method: Callable[Concatenate[Context, P], Any]) -> Callable[Concatenate["BlockingContext", P], Any]:
    @wraps(method)
    def call(self: "BlockingContext", /, *args: P.args, **kwargs: P.kwargs) -> Any:
        async def on_loop() -> Any:
            # Look up the method by name, because `Context` is a Protocol.
            result = getattr(self._context, method.__name__)(*args, **kwargs)
            return await result if isinstance(result, Awaitable) else result

        return _result_of(self._submit(on_loop()))

    return call


def _fact(name: str) -> Any:
    return property(attrgetter(f"_context.{name}"))


class BlockingContext:
    def __init__(self, context: Context, loop: asyncio.AbstractEventLoop) -> None:
        self._context = context
        self._loop = loop
        self._waiting: set[concurrent.futures.Future[Any]] = set()
        self._has_ended = False

    def end(self) -> None:
        """Cancel the methods that are waiting, and reject later calls. Must be called on the event loop."""
        self._has_ended = True
        # Copied, because a cancelled future removes itself from the set.
        for future in tuple(self._waiting):
            future.cancel()

    principal: str | None = _fact("principal")
    caller: Caller | None = _fact("caller")
    client: JsonObject = _fact("client")
    client_capabilities: JsonObject = _fact("client_capabilities")
    protocol_version: str = _fact("protocol_version")
    progress_token: str | int | None = _fact("progress_token")
    request_meta: JsonObject = _fact("request_meta")
    task: Task | None = _fact("task")

    @property
    def cancelled(self) -> bool:
        return self._has_ended  # `Context.cancelled` must be used on the loop only

    notify_changed = _blocking(Context.notify_changed)
    resource_updated = _blocking(Context.resource_updated)
    enable = _blocking(Context.enable)
    disable = _blocking(Context.disable)
    progress = _blocking(Context.progress)
    log = _blocking(Context.log)
    elicit = _blocking(Context.elicit)
    elicit_url = _blocking(Context.elicit_url)
    sample = _blocking(Context.sample)
    list_roots = _blocking(Context.list_roots)
    ask = _blocking(Context.ask)
    ask_before = _blocking(Context.ask_before)
    ask_inside = _blocking(Context.ask_inside)
    close_stream = _blocking(Context.close_stream)
    read_resource = _blocking(Context.read_resource)

    def once(self, key: str, function: Callable[[], T]) -> T:
        """Run `function` in the calling thread, unless its result is already known. See `Context.once`."""
        steps: SimpleQueue[concurrent.futures.Future[T] | None] = SimpleQueue()

        async def in_calling_thread() -> T:
            step: concurrent.futures.Future[T] = concurrent.futures.Future()
            steps.put(step)
            return await asyncio.wrap_future(step)

        async def on_loop() -> T:
            return await self._context.once(key, in_calling_thread)

        once = self._submit(on_loop())
        # The None ends the loop below, even if the call has ended.
        once.add_done_callback(lambda _: steps.put(None))
        while (step := steps.get()) is not None:
            # Returns False if the call has ended. Otherwise, the result can be set even if the call ends later.
            if not step.set_running_or_notify_cancel():
                continue
            try:
                step.set_result(function())
            except BaseException as error:  # noqa: BLE001 - Boundary: raised on the loop, and then here
                step.set_exception(error)
        return _result_of(once)

    def _submit(self, work: Coroutine[Any, Any, T]) -> "concurrent.futures.Future[T]":
        if self._has_ended:
            work.close()  # avoids the warning that it was never awaited
            raise ToolError("the call has ended")
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        self._waiting.add(future)
        future.add_done_callback(self._waiting.discard)
        if self._has_ended:  # the call ended between the check and `add`
            future.cancel()
        return future


def _result_of(future: "concurrent.futures.Future[T]") -> T:
    try:
        return future.result()
    except concurrent.futures.CancelledError:
        raise ToolError("the call has ended") from None
