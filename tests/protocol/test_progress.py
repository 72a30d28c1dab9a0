"""Progress grows, and a call that is silent shows that it still runs."""

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
from tests.protocol.peers import SECONDS, House, LegacyPeer, house, silent

Ts = TypeVarTuple("Ts")

NEVER: Final = timedelta(days=1)
SOON: Final = timedelta(milliseconds=5)


class Ear:
    """An exchange that keeps what it hears."""

    caller: Final = Caller(binding=Binding.MEMORY)

    def __init__(self) -> None:
        self.heard: Final[asyncio.Queue[JsonObject]] = asyncio.Queue()

    async def send(self, message: JsonObject) -> bool:
        await asyncio.sleep(0)
        self.heard.put_nowait(orjson.loads(orjson.dumps(message))["params"])
        return True

    async def close_stream(self, retry_ms: int | None) -> None:
        """There is none."""

    async def next(self) -> JsonObject:
        async with asyncio.timeout(SECONDS):
            return await self.heard.get()

    @property
    def values(self) -> list[float]:
        return [self.heard.get_nowait()["progress"] for _ in range(self.heard.qsize())]


@asynccontextmanager
async def progress_of(
    ear: Ear, repeat_after: timedelta = SOON, revision: str = "2025-11-25"
) -> AsyncIterator[Progress]:
    progress = Progress("token", ear, revision=revision, repeat_after=repeat_after, counters=NotificationCounters())
    try:
        yield progress
    finally:
        await progress.end()


async def say(progress: Progress, value: float, total: float | None, message: str | None) -> None:
    if (send := progress.report(value, total, message)) is not None:
        await send()


async def test_what_is_reported_is_sent_as_the_revision_has_it() -> None:
    for revision, message in (("2024-11-05", {}), ("2025-03-26", {"message": "half"})):
        ear = Ear()
        async with progress_of(ear, NEVER, revision) as progress:
            await say(progress, 1, 2, "half")
        assert await ear.next() == {"progressToken": "token", "progress": 1, "total": 2, **message}


@given(values=st.lists(st.floats() | st.integers(-(10**6), 10**6), max_size=10))
def test_values_grow_and_those_that_do_not_are_left_out(values: list[float]) -> None:
    async def run() -> list[float]:
        ear = Ear()
        async with progress_of(ear, NEVER) as progress:
            for value in values:
                await say(progress, value, None, None)
        return ear.values

    expected: list[float] = []
    for value in values:
        if math.isfinite(value) and (not expected or value > expected[-1]):
            expected.append(value)
    assert asyncio.run(run()) == expected


async def test_a_silent_call_gives_signs_of_life_that_grow() -> None:
    ear = Ear()
    async with progress_of(ear):
        first, second, third = [await ear.next() for _ in range(3)]
    assert first == {"progressToken": "token", "progress": 0}
    assert 0 < second["progress"] < third["progress"] < 1e-300


async def test_a_sign_of_life_stands_just_above_the_last_report_and_takes_nothing_from_the_next() -> None:
    ear = Ear()
    async with progress_of(ear) as progress:
        assert (await ear.next())["progress"] == 0
        last = 0.0
        for value in (0, 1, 1 + 2**-50, 2, 10**15, 10**16 + 1):
            await say(progress, value, 10**17, f"at {value}")
            while (heard := await ear.next()).get("message") != f"at {value}":
                last = heard["progress"]
            assert heard["progress"] > last
            assert math.isclose(heard["progress"], value, abs_tol=1e-300)
            sign = await ear.next()
            assert heard["progress"] < sign["progress"]
            assert math.isclose(sign["progress"], value, abs_tol=1e-300)
            assert sign["total"] == 10**17
            last = sign["progress"]


async def test_who_reports_often_gives_no_signs_of_life() -> None:
    ear = Ear()
    async with progress_of(ear, timedelta(milliseconds=200)) as progress:
        for value in range(30):
            await say(progress, value, None, None)
            await asyncio.sleep(0.02)
    assert ear.values == list(range(30))


async def test_nothing_is_said_after_the_end() -> None:
    ear = Ear()
    before = asyncio.all_tasks()
    async with progress_of(ear) as progress:
        await ear.next()
    said = ear.heard.qsize()
    await say(progress, 5, None, None)
    await asyncio.sleep(0.05)
    assert ear.heard.qsize() == said
    assert asyncio.all_tasks() == before


class Stuck(Ear):
    """An exchange whose reader does not read."""

    async def send(self, message: JsonObject) -> bool:
        self.heard.put_nowait(message)
        await asyncio.Event().wait()
        return True


async def test_a_call_that_is_cancelled_does_not_wait_for_a_reader_that_is_stuck() -> None:
    ear, before = Stuck(), asyncio.all_tasks()

    async def call() -> None:
        async with progress_of(ear):
            await ear.next()

    calling = asyncio.create_task(call())
    await asyncio.wait([calling], timeout=0.05)
    assert not calling.done()  # half a message must not stand before the answer
    calling.cancel()
    async with asyncio.timeout(SECONDS):
        await asyncio.wait([calling])
        while asyncio.all_tasks() != before:
            await asyncio.sleep(0)


class Slow(Ear):
    """An exchange whose reader does not read until it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.reads: Final = asyncio.Event()

    async def send(self, message: JsonObject) -> bool:
        self.heard.put_nowait(message)
        return await self.reads.wait()


class CountingLoop(asyncio.SelectorEventLoop):
    """An event loop that counts the timers that are set."""

    timers = 0

    def call_at(
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        self.timers += 1
        return super().call_at(when, callback, *args, context=context)


def test_a_reader_that_is_slow_costs_a_look_in_each_interval_and_not_in_each_turn_of_the_loop() -> None:
    async def run(loop: CountingLoop) -> tuple[int, float]:
        ear = Slow()
        async with progress_of(ear):
            await ear.next()
            before, began = loop.timers, loop.time()
            for _ in range(5000):
                await asyncio.sleep(0)
            looks, intervals = loop.timers - before, (loop.time() - began) / SOON.total_seconds()
            ear.reads.set()
            while (await ear.next())["params"]["progress"] == 0:
                """It goes on once what waits was read."""
        return looks, intervals

    loop = CountingLoop()
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        looks, intervals = runner.run(run(loop))
    assert looks <= intervals + 2


async def test_a_call_that_waits_for_its_user_shows_that_it_still_runs(inside: House) -> None:
    before = inside.dispatcher
    dispatcher = Dispatcher(
        store=before.store, services=before._server.services, keys=SigningKeys([b"key"]), repeat_after=SOON
    )
    peer = await LegacyPeer(dispatcher, says=silent).open()
    params = {"name": "named", "arguments": {}}
    calling = asyncio.create_task(peer.request("tools/call", {**params, "_meta": {"progressToken": 7}}))
    question = await asyncio.wait_for(peer.questions.get(), SECONDS)
    async with asyncio.timeout(SECONDS):
        while len(peer.sent) < 3:
            await asyncio.sleep(0.01)
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


async def test_a_report_loses_what_only_a_terminal_understands(tmp_path: Path) -> None:
    (tmp_path / "loud.py").write_text(LOUD)
    (tmp_path / "config.yaml").write_text('plugins: [.]\ntools: {loud: {python: "loud:loud"}}\n')
    async with house(tmp_path) as served:
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
