"""Implements `gateway.plugin.SyncContext` for functions that run in a thread.

Each method runs the method of `Context` on the event loop and waits for it. After the call has ended, every method
raises, so that a function that exceeded its deadline stops.
"""

import asyncio
import concurrent.futures
from collections.abc import Awaitable, Callable, Coroutine
from functools import wraps
from queue import SimpleQueue
from typing import Any, Concatenate, ParamSpec, TypeVar

from gateway.json_types import JsonObject
from gateway.plugin import Caller, Context, Task, ToolError

P = ParamSpec("P")
T = TypeVar("T")


def _blocking(
    method: Callable[Concatenate[Context, P], Awaitable[T]],
) -> Callable[Concatenate["BlockingContext", P], T]:
    """Return the blocking form of an awaitable method of `Context`."""

    @wraps(method)
    def call(self: "BlockingContext", /, *args: P.args, **kwargs: P.kwargs) -> T:
        async def on_loop() -> T:
            # By name, because `Context` is a Protocol.
            awaitable: Awaitable[T] = getattr(self._context, method.__name__)(*args, **kwargs)
            return await awaitable

        return self._wait(on_loop())

    return call


def _on_loop(method: Callable[Concatenate[Context, P], None]) -> Callable[Concatenate["BlockingContext", P], None]:
    """Return the thread-safe form of a plain method of `Context`."""

    @wraps(method)
    def call(self: "BlockingContext", /, *args: P.args, **kwargs: P.kwargs) -> None:
        async def on_loop() -> None:
            getattr(self._context, method.__name__)(*args, **kwargs)

        self._wait(on_loop())

    return call


class BlockingContext:
    def __init__(self, context: Context, loop: asyncio.AbstractEventLoop) -> None:
        self._context = context
        self._loop = loop
        self._waiting: set[concurrent.futures.Future[Any]] = set()
        self._has_ended = False

    def end(self) -> None:
        """Cancel waiting methods and reject later ones. Must be called on the loop."""
        self._has_ended = True
        # Copied, because a cancelled future removes itself from the set.
        for future in tuple(self._waiting):
            future.cancel()

    @property
    def principal(self) -> str | None:
        return self._context.principal

    @property
    def caller(self) -> Caller | None:
        return self._context.caller

    @property
    def client(self) -> JsonObject:
        return self._context.client

    @property
    def client_capabilities(self) -> JsonObject:
        return self._context.client_capabilities

    @property
    def protocol_version(self) -> str:
        return self._context.protocol_version

    @property
    def progress_token(self) -> str | int | None:
        return self._context.progress_token

    @property
    def request_meta(self) -> JsonObject:
        return self._context.request_meta

    @property
    def task(self) -> Task | None:
        return self._context.task

    @property
    def cancelled(self) -> bool:
        return self._has_ended  # `Context.cancelled` must be used on the loop only

    notify_changed = _on_loop(Context.notify_changed)
    resource_updated = _on_loop(Context.resource_updated)
    enable = _on_loop(Context.enable)
    disable = _on_loop(Context.disable)
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
        """Run `function` in the calling thread if necessary. See `Context.once`."""
        steps: SimpleQueue[concurrent.futures.Future[T] | None] = SimpleQueue()

        async def in_calling_thread() -> T:
            step: concurrent.futures.Future[T] = concurrent.futures.Future()
            steps.put(step)
            return await asyncio.wrap_future(step)

        once = self._submit(self._context.once(key, in_calling_thread))
        # Ends the loop below, even if the call has ended.
        once.add_done_callback(lambda _: steps.put(None))
        while (step := steps.get()) is not None:
            # False if the call has ended. Otherwise the future can be set, even after the call ends.
            if not step.set_running_or_notify_cancel():
                continue
            try:
                step.set_result(function())
            except BaseException as error:  # noqa: BLE001 - Boundary: raised on the loop, and then here
                step.set_exception(error)
        return self._result(once)

    def _wait(self, awaitable: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop and return its result.

        Raises:
            ToolError: the call has ended.
        """
        return self._result(self._submit(awaitable))

    def _submit(self, awaitable: Awaitable[T]) -> "concurrent.futures.Future[T]":
        if self._has_ended:
            _discard(awaitable)
            raise ToolError("the call has ended")
        # `run_coroutine_threadsafe` accepts only coroutines.
        future = asyncio.run_coroutine_threadsafe(_awaited(awaitable), self._loop)
        self._waiting.add(future)
        future.add_done_callback(self._waiting.discard)
        if self._has_ended:  # between the check and `add`
            future.cancel()
        return future

    def _result(self, future: "concurrent.futures.Future[T]") -> T:
        try:
            return future.result()
        except concurrent.futures.CancelledError:
            raise ToolError("the call has ended") from None


async def _awaited(awaitable: Awaitable[T]) -> T:
    return await awaitable


def _discard(awaitable: Awaitable[Any]) -> None:
    if isinstance(awaitable, Coroutine):
        awaitable.close()  # avoids the warning that it was never awaited
