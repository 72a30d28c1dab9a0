"""Steps of official clients while replicas fail. A step that fails is retried once.

Prints a line after each round: the calls made, answered, repeated and lost so far, and how many clients have
reconnected because the previous one stopped responding. It ends when it reads a line from standard input.
"""

import asyncio
import json
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from itertools import count
from typing import Any

from tests.interop.drivers.talk import ClientHandlers, Talker

Connect = Callable[[Any, ClientHandlers], AbstractAsyncContextManager[tuple[Talker, str]]]
URI = "test://note"
ATTEMPTS = 2
PAUSE_SECONDS = 0.1
"""The pause between two rounds. Without it, five clients would take the CPU time of the replicas."""
LEVELS = ["warning", "error", "critical", "alert", "emergency"]


class Connection:
    """A client in a separate task, which is cancelled when its transport breaks."""

    def __init__(self, connect: Connect, plan: Any) -> None:
        self.handlers = ClientHandlers()
        self.updated = asyncio.Event()
        self.talker: Talker
        self._connect = connect
        self._plan = plan
        self._is_over = asyncio.Event()
        self._is_ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._hold())

    async def ready(self) -> None:
        async with asyncio.timeout(self._plan["patience"] * 2):
            await asyncio.wait([self._is_ready, self._task], return_when=asyncio.FIRST_COMPLETED)
        if not self._is_ready.done():
            self._is_ready.cancel()
            await self._task

    async def end(self) -> None:
        self._is_over.set()
        _, stuck = await asyncio.wait([self._task], timeout=self._plan["patience"])
        for each in stuck:
            each.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _hold(self) -> None:
        async with self._connect(self._plan, self.handlers) as (self.talker, _):
            await self.talker.ask_for_logs()
            self.updated = await self.talker.watch(URI)
            self._is_ready.set_result(None)
            await self._is_over.wait()


class Rounds:
    """The steps of a round, and their outcomes."""

    def __init__(self, connect: Connect, plan: Any) -> None:
        self.counts: Counter[str] = Counter()
        self.lost: list[str] = []
        self._connect = connect
        self._plan = plan
        self._connection: Connection | None = None
        self._keys = count()
        self._tools: list[str] = []

    async def run(self) -> None:
        steps = (self._call, self._question, self._progress, self._logs, self._cancellation, self._update, self._list)
        for step in steps:
            await self._run_step(step)
        if (connection := self._connection) is not None and connection.talker.changed.is_set():
            connection.talker.changed.clear()
            self.counts["list notifications"] += 1
        self.counts["rounds"] += 1

    async def end(self) -> None:
        if self._connection is not None:
            await self._connection.end()

    def report(self) -> str:
        return json.dumps({**self.counts, "lost": self.lost, "tools": self._tools})

    async def _run_step(self, step: Callable[[Connection], Awaitable[None]]) -> None:
        name, why = step.__name__.removeprefix("_"), ""
        self.counts["made"] += 1
        for attempt in range(ATTEMPTS):
            try:
                async with asyncio.timeout(self._plan["patience"] * 3):
                    await step(await self._connected())
            except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - every error is a failure
                why = f"{why} {error!r}"
                await self._check_client(lacks_notifications=step == self._update)
                continue
            self.counts["answered"] += 1
            self.counts["repeated"] += attempt
            self.counts[f"repeated {name}"] += attempt
            return
        self.lost.append(f"{name}:{why}"[:500])

    async def _connected(self) -> Connection:
        if self._connection is None:
            self._connection = Connection(self._connect, self._plan)
            self.counts["connected"] += 1
            await self._connection.ready()
        return self._connection

    async def _check_client(self, *, lacks_notifications: bool) -> None:
        """Replace a client that no longer responds, or that no longer receives notifications.

        The client does not reopen its GET stream after the second interruption.
        """
        if (connection := self._connection) is None:
            return
        with suppress(Exception, asyncio.CancelledError):
            async with asyncio.timeout(self._plan["patience"]):
                await connection.talker.tools()
            if not lacks_notifications:
                return
        self._connection = None
        await connection.end()

    async def _call(self, connection: Connection) -> None:
        _assert_equal(_text(await connection.talker.call("say", {"text": "hi"})), "You said hi.")

    async def _question(self, connection: Connection) -> None:
        _assert_equal(_text(await connection.talker.call("named", {})), "accept {'name': 'Ada'}")

    async def _progress(self, connection: Connection) -> None:
        received: list[float] = []

        async def note(value: float, _total: float | None, _message: str | None) -> None:
            received.append(value)

        _assert_equal(_text(await connection.talker.call("count", {"values": [1, 2, 3]}, note)), "counted")
        _assert_equal(received, [1, 2, 3])

    async def _logs(self, connection: Connection) -> None:
        connection.handlers.logged.clear()
        await connection.talker.call("talk", {})
        _assert_equal([level for level, _ in connection.handlers.logged], LEVELS)

    async def _cancellation(self, connection: Connection) -> None:
        key = f"{self._plan['name']} {next(self._keys)}"
        calling = asyncio.create_task(connection.talker.call("wait", {"key": key}), name="wait")
        try:
            _assert_equal(_text(await connection.talker.call("reach", {"key": key, "state": "running"})), "running")
            await connection.talker.cancel(calling)
            _assert_equal(_text(await connection.talker.call("reach", {"key": key, "state": "cancelled"})), "cancelled")
        finally:
            calling.cancel()
            await asyncio.gather(calling, return_exceptions=True)

    async def _list(self, connection: Connection) -> None:
        self._tools = await connection.talker.tools()

    async def _update(self, connection: Connection) -> None:
        connection.updated.clear()
        await connection.talker.call("touch", {"uri": URI})
        async with asyncio.timeout(self._plan["patience"]):
            await connection.updated.wait()


async def endure(connect: Connect) -> None:
    """Run rounds until the test sends a line."""
    plan = json.loads(await asyncio.to_thread(sys.stdin.readline))
    rounds = Rounds(connect, plan)
    stopping = asyncio.create_task(asyncio.to_thread(sys.stdin.readline))
    async with _ended(rounds):
        while not stopping.done():
            await rounds.run()
            print(rounds.report(), flush=True)  # noqa: T201 - the test reads it
            await asyncio.wait([stopping], timeout=PAUSE_SECONDS)


@asynccontextmanager
async def _ended(rounds: Rounds) -> AsyncIterator[None]:
    try:
        yield
    finally:
        await rounds.end()


def _text(result: Any) -> str:
    return str(result.content[0].text)


def _assert_equal(found: object, expected: object) -> None:
    if found != expected:
        raise AssertionError(f"{found!r}; expected {expected!r}")
