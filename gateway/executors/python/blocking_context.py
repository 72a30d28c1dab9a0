"""The context of a call for a function that runs in a thread. Implements `gateway.plugin.SyncContext`.

Each method runs that of `Context` on the event loop and blocks the calling thread until it is done. Once the call has
been answered every method raises, and so does one that is still waiting: a function that outlived its deadline ends
with its next call of a method.
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
    """The blocking form of a method of `Context` that returns an awaitable, with the same parameters."""

    @wraps(method)
    def call(self: "BlockingContext", /, *args: P.args, **kwargs: P.kwargs) -> T:
        async def on_loop() -> T:
            # By its name: `Context` is a Protocol, and has no code of its own.
            doing: Awaitable[T] = getattr(self._context, method.__name__)(*args, **kwargs)
            return await doing

        return self._wait(on_loop())

    return call


def _on_loop(method: Callable[Concatenate[Context, P], None]) -> Callable[Concatenate["BlockingContext", P], None]:
    """The form of a plain method of `Context` that may be called from a thread, with the same parameters."""

    @wraps(method)
    def call(self: "BlockingContext", /, *args: P.args, **kwargs: P.kwargs) -> None:
        async def on_loop() -> None:
            getattr(self._context, method.__name__)(*args, **kwargs)

        self._wait(on_loop())

    return call


class BlockingContext:
    """A `SyncContext` over a `Context` and its event loop."""

    def __init__(self, context: Context, loop: asyncio.AbstractEventLoop) -> None:
        self._context = context
        self._loop = loop
        self._waiting: set[concurrent.futures.Future[Any]] = set()
        self._has_ended = False

    def end(self) -> None:
        """End every method that waits, and those called from now on. To be called on the loop."""
        self._has_ended = True
        # A copy: a future that is cancelled leaves the set at once, by its callback.
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
        return self._has_ended  # a cancelled call ends at once; `Context.cancelled` is for the loop's thread alone

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
        """Run `function` in the calling thread, if the context says that it has to run."""
        steps: SimpleQueue[concurrent.futures.Future[T] | None] = SimpleQueue()

        async def in_calling_thread() -> T:
            step: concurrent.futures.Future[T] = concurrent.futures.Future()
            steps.put(step)
            return await asyncio.wrap_future(step)

        once = self._submit(self._context.once(key, in_calling_thread))
        # Ends the loop below, also where the call was answered in the meantime.
        once.add_done_callback(lambda _: steps.put(None))
        while (step := steps.get()) is not None:
            # From here on it can be set, also where the call ends meanwhile; False: that has ended already.
            if not step.set_running_or_notify_cancel():
                continue
            try:
                step.set_result(function())
            except BaseException as error:  # noqa: BLE001 - Boundary: `once` raises it on the loop, and then here
                step.set_exception(error)
        return self._result(once)

    def _wait(self, doing: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop, and return or raise what it did.

        Raises:
            ToolError: the call has ended.
        """
        return self._result(self._submit(doing))

    def _submit(self, doing: Awaitable[T]) -> "concurrent.futures.Future[T]":
        if self._has_ended:
            _discard(doing)
            raise ToolError("the call has ended")
        # `_awaited`, because this takes coroutines alone, and `once` may be any awaitable.
        future = asyncio.run_coroutine_threadsafe(_awaited(doing), self._loop)
        self._waiting.add(future)
        future.add_done_callback(self._waiting.discard)
        if self._has_ended:  # between the check and the entry in the set
            future.cancel()
        return future

    def _result(self, future: "concurrent.futures.Future[T]") -> T:
        try:
            return future.result()
        except concurrent.futures.CancelledError:
            raise ToolError("the call has ended") from None


async def _awaited(doing: Awaitable[T]) -> T:
    return await doing


def _discard(doing: Awaitable[Any]) -> None:
    if isinstance(doing, Coroutine):
        doing.close()  # otherwise Python warns that it was never awaited
