"""Calls of plugin functions, their deadlines and results."""

import asyncio
import math
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from pydantic import BaseModel

from gateway.config.diagnostics.problems import Problems
from gateway.config.models.backends import PythonCall
from gateway.errors import ExecutionError, RpcError
from gateway.executors.invocation import Blocks, Invocation, Outcome, RawOutput, Value
from gateway.executors.python.executor import PythonExecutor, compile_python
from gateway.executors.python.results import outcome_of
from gateway.executors.python.signature import read_signature
from gateway.json_types import Json
from gateway.net.clients import HttpClients
from gateway.net.request_facts import steps_of_requests
from gateway.plugin import (
    Answer,
    Audio,
    Context,
    EmbeddedResource,
    Image,
    ProtocolError,
    ResourceLink,
    SyncContext,
    Text,
    ToolError,
)
from gateway.telemetry.trace import UNTRACED, TraceContext, Untraced
from gateway.threads import DaemonThreadPool
from tests.captured_logs import capture_logs
from tests.executors.recording import (
    OneFile,
    RecordingContext,
    RecordingPermit,
    make_invocation,
    make_scope,
    messages_of,
)
from tests.waiting import until


@pytest.fixture
async def threads() -> AsyncIterator[DaemonThreadPool]:
    others = set(threading.enumerate())  # for example of a gateway of another test
    async with DaemonThreadPool(4) as threads:
        yield threads
        async with asyncio.timeout(15):
            while threads.busy or threads.stuck:
                await asyncio.sleep(0.005)
    assert [task for task in asyncio.all_tasks() if "plugin" in task.get_name()] == []
    await until(lambda: not any(thread.name == "plugin" for thread in set(threading.enumerate()) - others))


@pytest.fixture
async def echo() -> AsyncIterator[str]:
    """The URL of a server that returns its trace headers."""

    async def handle(request: web.Request) -> web.Response:
        return web.json_response([request.headers.get(name) for name in ("traceparent", "tracestate")])

    application = web.Application()
    application.router.add_get("/", handle)
    async with TestServer(application) as server:
        yield str(server.make_url("/"))


def executor(
    function: Callable[..., Any], threads: DaemonThreadPool, *, timeout: float | None = None
) -> PythonExecutor:
    problems = Problems(OneFile(Path("/")))
    signature = read_signature(function, name="shop:f", problems=problems)
    assert signature is not None, list(problems)
    return PythonExecutor(signature=signature, place="tools.f", threads=threads, timeout=timeout)


async def outcome(function: Callable[..., Any], threads: DaemonThreadPool, **arguments: Json) -> Outcome:
    return await executor(function, threads).execute(make_invocation(arguments))


async def test_async_functions_run_on_the_loop_and_others_in_a_thread(threads: DaemonThreadPool) -> None:
    async def asynchronous(n: int) -> list[Any]:
        return [n, threading.current_thread() is threading.main_thread()]

    def plain(n: int) -> list[Any]:
        return [n, threading.current_thread().name]

    assert await outcome(asynchronous, threads, n=1) == Value(value=[1, True])
    assert await outcome(plain, threads, n=1) == Value(value=[1, "plugin"])


class Model(BaseModel):
    when: datetime


@dataclass
class Nested:
    model: Model
    _private: int = 1


@pytest.mark.parametrize(
    ("returned", "expected"),
    [
        (None, Blocks(content=())),
        ("text", Value(value="text")),
        ("half \ud800", Value(value="half ?")),
        (5, Value(value=5)),
        (True, Value(value=True)),
        ({"a": (1, {2}), 3: None}, Value(value={"a": [1, [2]], "3": None})),
        (
            Nested(Model(when=datetime(2025, 1, 31, tzinfo=UTC))),
            Value(value={"model": {"when": "2025-01-31T00:00:00Z"}, "_private": 1}),
        ),
        (
            [Model(when=datetime(2025, 1, 31, tzinfo=UTC))],
            Value(value=[{"when": "2025-01-31T00:00:00Z"}]),
        ),
        (2**70, Value(value=2**70)),
        (["NaN", None, {2**70}], Value(value=["NaN", None, [2**70]])),
        (b"\x00\xff", RawOutput(data=b"\x00\xff", media_type="application/octet-stream", is_blob=True)),
        (
            {"answers": [Answer(action="accept", content={"a": 1})]},
            Value(value={"answers": [{"action": "accept", "content": {"a": 1}}]}),
        ),
        (
            Image(b"png", "image/png", annotations={"priority": 1}),
            Blocks(
                content=({"type": "image", "data": "cG5n", "mimeType": "image/png", "annotations": {"priority": 1}},)
            ),
        ),
        (
            [
                Text("one"),
                "two",
                {"three": 3},
                Audio(b"wav", "audio/wav"),
                EmbeddedResource("x:/a", "text"),
                EmbeddedResource("x:/b", b"blob", "image/gif"),
                ResourceLink("x:/c", "c", size=0),
            ],
            Blocks(
                content=(
                    {"type": "text", "text": "one"},
                    {"type": "text", "text": "two"},
                    {"type": "text", "text": '{"three":3}'},
                    {"type": "audio", "data": "d2F2", "mimeType": "audio/wav"},
                    {"type": "resource", "resource": {"uri": "x:/a", "text": "text"}},
                    {"type": "resource", "resource": {"uri": "x:/b", "mimeType": "image/gif", "blob": "YmxvYg=="}},
                    {"type": "resource_link", "uri": "x:/c", "name": "c", "size": 0},
                )
            ),
        ),
    ],
)
async def test_function_result_becomes_an_outcome(
    threads: DaemonThreadPool, returned: object, expected: Outcome
) -> None:
    assert await outcome(lambda: returned, threads) == expected


def test_result_is_not_shared_with_the_plugin() -> None:
    kept: dict[str, list[int]] = {"a": []}
    result = outcome_of(kept)
    kept["a"].append(1)
    assert result == Value(value={"a": []})


@dataclass
class Weighed:
    weights: dict[int, float]


def endless() -> Iterator[int]:
    while True:
        yield 1


def recursive() -> list[Any]:
    itself: list[Any] = []
    itself.append(itself)
    return itself


@pytest.mark.parametrize(
    ("returned", "reason"),
    [
        ({"a": [object()]}, "Unable to serialize unknown type: <class 'object'>"),
        ([endless()], "Type is not JSON serializable: generator"),
        (float("nan"), "nan. Return None or text instead"),
        ({"rows": [{"price": 1.5}, {"price": -math.inf}, {"price": math.nan}]}, "-inf at /rows/1/price"),
        (Weighed({1: math.nan}), "nan at /weights/1"),
        ([Text("one"), {"a": (None, math.inf)}], "inf at /a/1"),
        ([10**5000], "the limit (4300 digits)"),
        ({"a": "\ud800"}, "str is not valid UTF-8: surrogates not allowed"),
        (recursive(), "Recursion limit reached"),
    ],
)
def test_value_without_json_form_is_an_error_with_its_type(returned: object, reason: str) -> None:
    with pytest.raises(ExecutionError, match="cannot be converted to JSON") as caught:
        outcome_of(returned)
    assert reason in str(caught.value)


async def test_coroutine_from_a_plain_function_is_an_error(threads: DaemonThreadPool) -> None:
    async def hidden() -> int:
        return 1

    with pytest.raises(ExecutionError, match="async def"):
        await outcome(lambda: hidden(), threads)  # noqa: PLW0108 - a plain function that returns a coroutine


@pytest.mark.parametrize(
    "raised",
    [
        ZeroDivisionError("secret"),
        SystemExit("secret"),
        KeyboardInterrupt("secret"),
        GeneratorExit("secret"),
        StopIteration("secret"),
        asyncio.CancelledError("secret"),
        TimeoutError("secret"),
        RecursionError("secret"),
    ],
    ids=lambda error: type(error).__name__,
)
@pytest.mark.parametrize("is_async", [True, False])
async def test_plugin_exceptions_end_only_their_call(
    threads: DaemonThreadPool,
    raised: BaseException,
    is_async: bool,  # noqa: FBT001 - a parametrised value
) -> None:
    def plain() -> None:
        raise raised

    async def asynchronous() -> None:
        raise raised

    with capture_logs() as logs, pytest.raises(ExecutionError) as caught:
        await outcome(asynchronous if is_async else plain, threads)
    (entry,) = logs
    assert str(caught.value) == f"shop:f failed; correlation id {entry['correlation_id']}"
    assert entry["plugin"] == "shop:f"
    assert entry["exc_info"] is not None


async def test_plugin_errors_reach_the_caller(threads: DaemonThreadPool) -> None:
    def refuse() -> None:
        raise ToolError("not today")

    async def protest() -> None:
        raise ProtocolError(7, "no", {"a": 1})

    with pytest.raises(ExecutionError, match=r"^not today$"):
        await outcome(refuse, threads)
    with pytest.raises(RpcError) as caught:
        await outcome(protest, threads)
    assert (caught.value.code, caught.value.message, caught.value.data) == (7, "no", {"a": 1})


class Hanging:
    """A plain function that waits until it is released."""

    def __init__(self) -> None:
        self.has_begun = threading.Event()
        self.release = threading.Event()

    def __call__(self) -> None:
        self.has_begun.set()
        self.release.wait(15)


async def times_out(call: PythonExecutor, invocation: Invocation, has_begun: threading.Event) -> None:
    """The timeout starts with the function, not with the wait for a thread."""
    invocation.deadline.pause()
    running = asyncio.create_task(call.execute(invocation))
    await until(has_begun.is_set)
    invocation.deadline.resume()
    with pytest.raises(ExecutionError, match="timed out"):
        await running


async def test_call_in_a_hanging_thread_times_out_and_keeps_its_permit(threads: DaemonThreadPool) -> None:
    hanging, permit = Hanging(), RecordingPermit()
    await times_out(executor(hanging, threads), make_invocation(permit=permit, timeout=0.05), hanging.has_begun)
    assert (threads.stuck, len(permit.held_by)) == (1, 1)
    hanging.release.set()
    await permit.freed()
    assert threads.stuck == 0


async def test_async_function_that_ignores_cancellation_times_out(threads: DaemonThreadPool) -> None:
    release, permit = asyncio.Event(), RecordingPermit()

    async def stubborn() -> None:
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue

    with pytest.raises(ExecutionError, match="timed out"):
        await executor(stubborn, threads).execute(make_invocation(permit=permit, timeout=0.05))
    await asyncio.sleep(0)
    assert threads.stuck == 1
    release.set()
    await permit.freed()


async def test_timeout_of_the_backend_applies(threads: DaemonThreadPool) -> None:
    hanging = Hanging()
    await times_out(executor(hanging, threads, timeout=0.02), make_invocation(), hanging.has_begun)
    hanging.release.set()


async def test_expired_deadline_applies(threads: DaemonThreadPool) -> None:
    async def wait() -> None:
        await asyncio.sleep(15)

    with pytest.raises(ExecutionError, match="timed out"):
        await executor(wait, threads).execute(make_invocation(timeout=-1))


async def test_cancelling_the_call_cancels_an_async_function(threads: DaemonThreadPool) -> None:
    started, ended, permit = asyncio.Event(), asyncio.Event(), RecordingPermit()

    async def wait() -> None:
        started.set()
        try:
            await asyncio.sleep(15)
        finally:
            ended.set()

    call = asyncio.create_task(executor(wait, threads).execute(make_invocation(permit=permit)))
    await started.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    async with asyncio.timeout(15):
        await ended.wait()
    await permit.freed()


async def test_busy_threads_are_named_as_the_reason() -> None:
    release = threading.Event()
    async with DaemonThreadPool(1) as threads:
        stuck = asyncio.create_task(executor(release.wait, threads).execute(make_invocation()))
        await asyncio.sleep(0)
        with pytest.raises(ExecutionError, match=r"all plugin threads were busy .* \(limits.threads\)"):
            await outcome_within(executor(lambda: 1, threads), make_invocation(timeout=0.05))
        release.set()
        await stuck


async def outcome_within(call: PythonExecutor, invocation: Invocation) -> Outcome:
    async with asyncio.timeout(15):
        return await call.execute(invocation)


async def test_plain_function_uses_its_context_from_a_thread(threads: DaemonThreadPool) -> None:
    context = RecordingContext(principal="ada", request_meta={"k": 1})

    def speak(context: SyncContext) -> list[Any]:
        context.progress(1, 2, "half")
        context.log("info", {"a": 1})
        context.notify_changed("tools")
        context.enable("tools", "x")
        where = context.once("key", lambda: threading.current_thread().name)
        return [context.principal, context.request_meta, context.cancelled, where]

    result = await executor(speak, threads).execute(make_invocation(context=context))
    assert result == Value(value=["ada", {"k": 1}, False, "plugin"])
    assert context.progressed == [(1, 2, "half")]
    assert context.logged == [("info", {"a": 1}, None)]
    assert context.changed == ["tools", ("enable", "tools", "x")]
    assert executor(speak, threads).explain(make_invocation()).facts["arguments"] == {}


async def test_context_errors_are_raised_in_the_thread(threads: DaemonThreadPool) -> None:
    def ask(context: SyncContext) -> str:
        try:
            context.list_roots("key")
        except NotImplementedError:
            return "raised"
        return "silent"

    def divide(context: SyncContext) -> str:
        try:
            context.once("key", lambda: 1 / 0)
        except ZeroDivisionError:
            return "raised"
        return "silent"

    assert await outcome(ask, threads) == Value(value="raised")
    assert await outcome(divide, threads) == Value(value="raised")


async def test_function_that_exceeded_its_deadline_ends_at_its_next_context_call(threads: DaemonThreadPool) -> None:
    hanging = Hanging()
    heard: list[object] = []

    def linger(context: SyncContext) -> None:
        hanging()
        heard.append(context.cancelled)
        try:
            context.progress(1)
        except ToolError as error:
            heard.append(str(error))

    context, permit = RecordingContext(), RecordingPermit()
    invocation = make_invocation(context=context, permit=permit, timeout=0.05)
    await times_out(executor(linger, threads), invocation, hanging.has_begun)
    hanging.release.set()
    await permit.freed()
    assert heard == [True, "the call has ended"]
    assert context.progressed == []


async def test_step_that_outlives_its_call_raises(threads: DaemonThreadPool) -> None:
    hanging = Hanging()
    heard: list[str] = []

    def linger(context: SyncContext) -> None:
        try:
            context.once("step", hanging)
        except ToolError as error:
            heard.append(str(error))

    permit = RecordingPermit()
    await times_out(executor(linger, threads), make_invocation(permit=permit, timeout=0.05), hanging.has_begun)
    for _ in range(10):  # until the loop has dropped the step
        await asyncio.sleep(0)
    hanging.release.set()
    await permit.freed()
    assert heard == ["the call has ended"]


class NeverAnswering(RecordingContext):
    def __init__(self) -> None:
        super().__init__()
        self.was_asked = threading.Event()

    async def read_resource(self, uri: str) -> list[Any]:
        self.was_asked.set()
        await asyncio.Event().wait()
        return [uri]


async def test_thread_that_waits_for_its_context_is_released_at_the_deadline(threads: DaemonThreadPool) -> None:
    def wait(context: SyncContext) -> None:
        context.read_resource("x:/a")

    context, permit = NeverAnswering(), RecordingPermit()
    await times_out(
        executor(wait, threads), make_invocation(context=context, permit=permit, timeout=0.05), context.was_asked
    )
    await permit.freed()


async def test_async_function_gets_the_context(threads: DaemonThreadPool) -> None:
    seen = []

    async def keep(context: Context) -> None:
        seen.append(context)

    context = RecordingContext()
    await executor(keep, threads).execute(make_invocation(context=context))
    assert seen == [context]


async def test_caller_can_convert_the_result(threads: DaemonThreadPool) -> None:
    names = await executor(lambda: "a b", threads).call(
        make_invocation(), convert=lambda returned: str(returned).split()
    )
    assert names == ["a", "b"]


def test_function_that_does_not_match_its_inputs_is_reported() -> None:
    scope = make_scope({"a": {}, "c": {}})
    signature = read_signature(lambda a, b: None, name="shop:f", problems=scope.problems)
    assert signature is not None
    compile_python(PythonCall(call="shop:f"), signature, scope=scope, threads=DaemonThreadPool(1))
    assert scope.used == {"a", "c"}
    assert messages_of(scope) == [
        "the parameter b of shop:f is not among the inputs",
        "shop:f has no parameter c",
    ]


PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.mark.parametrize(
    ("trace", "own", "seen"),
    [
        (Untraced(TraceContext(parent=PARENT, state="a=1")), {}, [PARENT, "a=1"]),
        (
            Untraced(TraceContext(parent=PARENT, state="a=1")),
            {"Traceparent": PARENT[:-1] + "0"},
            [PARENT[:-1] + "0", None],
        ),
        (UNTRACED, {}, [None, None]),
    ],
)
async def test_requests_of_a_plugin_carry_the_trace_of_its_call(
    threads: DaemonThreadPool, echo: str, trace: Untraced, own: dict[str, str], seen: list[str | None]
) -> None:
    async with aiohttp.ClientSession(trace_configs=[steps_of_requests()]) as session:

        async def ask() -> list[str | None]:
            async with session.get(echo, headers=own) as answer:
                found: list[str | None] = await answer.json()
            return found

        told = await executor(ask, threads).execute(replace(make_invocation({}), trace=trace))
        assert told == Value(value=seen)
        assert await ask() == [None if not own else own["Traceparent"], None]


async def test_shared_http_client_of_plugins_sends_trace_headers() -> None:
    async with HttpClients() as clients:
        assert len(clients.shared.trace_configs) == 1
