"""The context of a call for a function that runs in a thread: each method blocks it until the loop is done.

Once the call has been answered every method raises, and so does one that is still waiting: a function that outlived its
deadline ends at its next word.
"""

import asyncio
import concurrent.futures
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from queue import SimpleQueue
from typing import Any, TypeVar

from gateway.json_types import Json, JsonObject
from gateway.plugin import Answer, Context, ListKind, LogLevel, Sample, ToolError

T = TypeVar("T")


class BlockingContext:
    """`SyncContext` over a `Context` and its loop."""

    def __init__(self, context: Context, loop: asyncio.AbstractEventLoop) -> None:
        self._context = context
        self._loop = loop
        self._waiting: set[concurrent.futures.Future[Any]] = set()
        self._has_ended = False

    def end(self) -> None:
        """The call has been answered. To be called on the loop."""
        self._has_ended = True
        for future in tuple(self._waiting):
            future.cancel()

    @property
    def principal(self) -> str | None:
        return self._context.principal

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
    def cancelled(self) -> bool:
        return self._has_ended  # a cancelled call ends at once; what the loop knows is not to be asked from here

    def notify_changed(self, kind: ListKind) -> None:
        self._call(self._context.notify_changed, kind)

    def resource_updated(self, uri: str) -> None:
        self._call(self._context.resource_updated, uri)

    def enable(self, kind: ListKind, name: str) -> None:
        self._call(self._context.enable, kind, name)

    def disable(self, kind: ListKind, name: str) -> None:
        self._call(self._context.disable, kind, name)

    def progress(self, value: float, total: float | None = None, message: str | None = None) -> None:
        self._wait(self._context.progress(value, total, message))

    def log(self, level: LogLevel, data: Json, logger: str | None = None) -> None:
        self._wait(self._context.log(level, data, logger))

    def elicit(self, key: str, message: str, schema: JsonObject) -> Answer:
        return self._wait(self._context.elicit(key, message, schema))

    def elicit_url(self, key: str, message: str, url: str) -> Answer:
        return self._wait(self._context.elicit_url(key, message, url))

    def sample(  # noqa: PLR0913 - the fields of sampling/createMessage
        self,
        key: str,
        messages: str | Sequence[JsonObject],
        *,
        system_prompt: str | None = None,
        max_tokens: int = 1000,
        temperature: float | None = None,
        stop_sequences: Sequence[str] | None = None,
        model_preferences: JsonObject | None = None,
        tools: Sequence[JsonObject] | None = None,
    ) -> Sample:
        return self._wait(
            self._context.sample(
                key,
                messages,
                system_prompt=system_prompt,
                max_tokens=max_tokens,
                temperature=temperature,
                stop_sequences=stop_sequences,
                model_preferences=model_preferences,
                tools=tools,
            )
        )

    def list_roots(self, key: str) -> Sequence[JsonObject]:
        return self._wait(self._context.list_roots(key))

    def ask(self, requests: Mapping[str, JsonObject]) -> Mapping[str, Json]:
        return self._wait(self._context.ask(requests))

    def once(self, key: str, function: Callable[[], T]) -> T:
        """Run `function` in the calling thread, if the context says that it has to run."""
        steps: SimpleQueue[concurrent.futures.Future[T] | None] = SimpleQueue()

        async def in_calling_thread() -> T:
            step: concurrent.futures.Future[T] = concurrent.futures.Future()
            steps.put(step)
            return await asyncio.wrap_future(step)

        once = self._submit(self._context.once(key, in_calling_thread))
        once.add_done_callback(lambda _: steps.put(None))
        while (step := steps.get()) is not None:
            try:
                step.set_result(function())
            except BaseException as error:  # noqa: BLE001 - Boundary: it comes back through `once`
                step.set_exception(error)
        return self._result(once)

    def close_stream(self, retry_ms: int | None = None) -> None:
        self._wait(self._context.close_stream(retry_ms))

    def read_resource(self, uri: str) -> Sequence[JsonObject]:
        return self._wait(self._context.read_resource(uri))

    def _call(self, function: Callable[..., None], *args: str) -> None:
        async def on_the_loop() -> None:
            function(*args)

        self._wait(on_the_loop())

    def _wait(self, doing: Coroutine[Any, Any, T]) -> T:
        return self._result(self._submit(doing))

    def _submit(self, doing: Awaitable[T]) -> "concurrent.futures.Future[T]":
        if self._has_ended:
            _discard(doing)
            raise ToolError("the call has ended")
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
