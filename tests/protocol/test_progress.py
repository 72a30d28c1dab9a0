"""Progress increases, and silent calls repeat it."""

import asyncio
import math
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from contextvars import Context
from datetime import timedelta
from pathlib import Path
from typing import Final, TypeVarTuple

import orjson
from hypothesis import given
from hypothesis import strategies as st

from gateway.json_types import JsonObject
from gateway.protocol.call.progress import Progress
from gateway.protocol.dispatcher import Dispatcher
from gateway.protocol.exchange import Binding, Caller
from gateway.protocol.outbox import NotificationCounters
from gateway.state.keys import SigningKeys
from tests.protocol.peers import SECONDS, LegacyPeer, LocalGateway, serve_folder, silent
from tests.waiting import until

Ts = TypeVarTuple("Ts")

NEVER: Final = timedelta(days=1)
SOON: Final = timedelta(milliseconds=5)


class RecordingExchange:
    """An exchange that records its messages."""

    caller: Final = Caller(binding=Binding.MEMORY)

    def __init__(self) -> None:
        self.heard: Final[asyncio.Queue[JsonObject]] = asyncio.Queue()

    async def send(self, message: JsonObject) -> bool:
        await asyncio.sleep(0)
        self.heard.put_nowait(orjson.loads(orjson.dumps(message))["params"])
        return True

    async def close_stream(self, retry_ms: int | None) -> None:
        """Do nothing."""

    async def next(self) -> JsonObject:
        async with asyncio.timeout(SECONDS):
            return await self.heard.get()

    @property
    def values(self) -> list[float]:
        return [self.heard.get_nowait()["progress"] for _ in range(self.heard.qsize())]


@asynccontextmanager
async def progress_of(
    exchange: RecordingExchange, repeat_after: timedelta = SOON, revision: str = "2025-11-25"
) -> AsyncIterator[Progress]:
    progress = Progress(
        "token", exchange, revision=revision, repeat_after=repeat_after, counters=NotificationCounters()
    )
    try:
        yield progress
    finally:
        await progress.end()


async def say(progress: Progress, value: float, total: float | None, message: str | None) -> None:
    if (send := progress.report(value, total, message)) is not None:
        await send()


@given(values=st.lists(st.floats() | st.integers(-(10**6), 10**6), max_size=10))
def test_values_that_do_not_increase_are_ignored(values: list[float]) -> None:
    async def run() -> list[float]:
        exchange = RecordingExchange()
        async with progress_of(exchange, NEVER) as progress:
            for value in values:
                await say(progress, value, None, None)
        return exchange.values

    expected: list[float] = []
    for value in values:
        if math.isfinite(value) and (not expected or value > expected[-1]):
            expected.append(value)
    assert asyncio.run(run()) == expected


async def test_silent_call_repeats_increasing_progress() -> None:
    exchange = RecordingExchange()
    async with progress_of(exchange):
        first, second, third = [await exchange.next() for _ in range(3)]
    assert first == {"progressToken": "token", "progress": 0}
    assert 0 < second["progress"] < third["progress"] < 1e-300


async def test_repetition_is_barely_above_the_last_report() -> None:
    exchange = RecordingExchange()
    async with progress_of(exchange) as progress:
        assert (await exchange.next())["progress"] == 0
        last = 0.0
        for value in (0, 1, 1 + 2**-50, 2, 10**15, 10**16 + 1):
            await say(progress, value, 10**17, f"at {value}")
            while (heard := await exchange.next()).get("message") != f"at {value}":
                last = heard["progress"]
            assert heard["progress"] > last
            assert math.isclose(heard["progress"], value, abs_tol=1e-300)
            sign = await exchange.next()
            assert heard["progress"] < sign["progress"]
            assert math.isclose(sign["progress"], value, abs_tol=1e-300)
            assert sign["total"] == 10**17
            last = sign["progress"]


async def test_frequent_reports_are_not_repeated() -> None:
    exchange = RecordingExchange()
    async with progress_of(exchange, timedelta(milliseconds=200)) as progress:
        for value in range(30):
            await say(progress, value, None, None)
            await asyncio.sleep(0.02)
    assert exchange.values == list(range(30))


async def test_no_progress_after_the_end() -> None:
    exchange = RecordingExchange()
    before = asyncio.all_tasks()
    async with progress_of(exchange) as progress:
        await exchange.next()
    said = exchange.heard.qsize()
    await say(progress, 5, None, None)
    await asyncio.sleep(0.05)
    assert exchange.heard.qsize() == said
    assert asyncio.all_tasks() == before


class StuckExchange(RecordingExchange):
    """An exchange whose client never reads."""

    async def send(self, message: JsonObject) -> bool:
        self.heard.put_nowait(message)
        await asyncio.Event().wait()
        return True


async def test_cancelled_call_does_not_wait_for_a_stuck_reader() -> None:
    exchange, before = StuckExchange(), asyncio.all_tasks()

    async def call() -> None:
        async with progress_of(exchange):
            await exchange.next()

    calling = asyncio.create_task(call())
    await asyncio.wait([calling], timeout=0.05)
    assert not calling.done()  # a message must not be cut off
    calling.cancel()
    async with asyncio.timeout(SECONDS):
        await asyncio.wait([calling])
        while asyncio.all_tasks() != before:
            await asyncio.sleep(0)


class SlowExchange(RecordingExchange):
    """An exchange whose client reads later."""

    def __init__(self) -> None:
        super().__init__()
        self.reads: Final = asyncio.Event()

    async def send(self, message: JsonObject) -> bool:
        self.heard.put_nowait(message)
        return await self.reads.wait()


class CountingLoop(asyncio.SelectorEventLoop):
    """An event loop that counts timers."""

    timers = 0

    def call_at(
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        self.timers += 1
        return super().call_at(when, callback, *args, context=context)


def test_slow_reader_sets_one_timer_per_interval() -> None:
    async def run(loop: CountingLoop) -> tuple[int, float]:
        exchange = SlowExchange()
        async with progress_of(exchange):
            await exchange.next()
            before, began = loop.timers, loop.time()
            for _ in range(5000):
                await asyncio.sleep(0)
            looks, intervals = loop.timers - before, (loop.time() - began) / SOON.total_seconds()
            exchange.reads.set()
            while (await exchange.next())["params"]["progress"] == 0:
                """Wait until the queued message was read."""
        return looks, intervals

    loop = CountingLoop()
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        looks, intervals = runner.run(run(loop))
    assert looks <= intervals + 2


async def test_call_with_open_request_repeats_progress(inside: LocalGateway) -> None:
    before = inside.dispatcher
    dispatcher = Dispatcher(
        store=before.store, services=before._server.services, keys=SigningKeys([b"key"]), repeat_after=SOON
    )
    peer = await LegacyPeer(dispatcher, respond=silent).open()
    params = {"name": "named", "arguments": {}}
    calling = asyncio.create_task(peer.request("tools/call", {**params, "_meta": {"progressToken": 7}}))
    question = await asyncio.wait_for(peer.questions.get(), SECONDS)
    await until(lambda: len(peer.sent) >= 3)
    await peer.answer(question["id"], result={"action": "accept", "content": {"name": "Ada"}})
    await calling
    assert {message["params"]["progressToken"] for message in peer.sent} == {7}
    said = len(peer.sent)
    unasked = asyncio.create_task(peer.request("tools/call", params))
    question = await asyncio.wait_for(peer.questions.get(), SECONDS)
    await asyncio.sleep(0.05)
    await peer.answer(question["id"], result={"action": "decline"})
    await unasked
    assert len(peer.sent) == said


async def test_control_characters_are_removed_from_progress_messages(tmp_path: Path) -> None:
    (tmp_path / "loud.py").write_text(LOUD)
    (tmp_path / "config.yaml").write_text('plugins: [.]\ntools: {loud: {python: "loud:loud"}}\n')
    async with serve_folder(tmp_path) as served:
        peer = served.modern()
        await peer.request("tools/call", {"name": "loud", "_meta": {"progressToken": 1}})
    assert [message["params"]["message"] for message in peer.sent] == ["red\tand more"]


LOUD: Final = '''
from gateway.plugin import Context
from gateway.state.keys import SigningKeys

async def loud(context: Context) -> str:
    """Be loud."""
    await context.progress(1, message="\\x1b[31mred\\x1b[0m\\t\\x07and more")
    return "done"
'''
