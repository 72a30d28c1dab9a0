"""Tests for the limit of unread response bytes."""

import asyncio
import gc
import socket
import tracemalloc
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from typing import Final

import orjson
import pytest

from gateway.config.models.server import SizeShares
from gateway.json_types import JsonObject
from gateway.transports.quota import WriteQuota
from tests.messages import BOTH, modern_headers, modern_request
from tests.transports.http_server import RunningServer, call, http_server
from tests.waiting import until

LARGE: Final = 8_000_000
"""More than the buffers at both ends of a connection."""
OTHER: Final = "127.0.0.2"
EVENTS: Final = {"Accept": "text/event-stream"}


def quota_of(*, per_caller: int, in_all: int) -> WriteQuota:
    return WriteQuota(SizeShares(per_caller=per_caller, in_all=in_all))


def head_and_body(message: JsonObject, fields: Mapping[str, str]) -> bytes:
    body = orjson.dumps(message)
    all_fields = {
        "Host": "127.0.0.1",
        "Content-Type": "application/json",
        "Accept": BOTH,
        **fields,
        "Content-Length": str(len(body)),
    }
    lines = ["POST /mcp HTTP/1.1", *(f"{name}: {value}" for name, value in all_fields.items())]
    return "\r\n".join([*lines, "", ""]).encode() + body


@contextmanager
def asking(
    served: RunningServer, message: JsonObject, fields: Mapping[str, str], *, source: str = OTHER
) -> Iterator[socket.socket]:
    """A connection that has sent a request and reads nothing."""
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
        connection.bind((source, 0))
        connection.connect((served.address.host, served.address.port))
        connection.sendall(head_and_body(message, fields))
        connection.setblocking(False)  # noqa: FBT003 - the library's signature
        yield connection


async def first_line(connection: socket.socket) -> bytes:
    async with asyncio.timeout(20):
        return (await asyncio.get_running_loop().sock_recv(connection, 4096)).partition(b"\r\n")[0]


def modern(size: int) -> tuple[JsonObject, Mapping[str, str]]:
    params = {"name": "large", "arguments": {"size": size}}
    return modern_request("tools/call", params), modern_headers("tools/call", params)


async def of_kind(kind: str, served: RunningServer) -> tuple[JsonObject, Mapping[str, str]]:
    """A request for a large response."""
    if "modern" in kind:
        message, fields = modern(LARGE)
    else:
        message, fields = call("large", size=LARGE), {"Mcp-Session-Id": await served.initialize()}
    return message, {**fields, **(EVENTS if "event" in kind else {})}


KINDS: Final = ("modern", "modern event", "legacy", "legacy event")


async def test_slow_reader_is_limited_while_others_are_served() -> None:
    quota = quota_of(per_caller=2 * LARGE + 100_000, in_all=4 * LARGE)
    async with http_server(write_timeout=60, quota=quota) as served:
        with ExitStack() as stack:
            message, fields = modern(LARGE)
            connections = [stack.enter_context(asking(served, message, fields)) for _ in range(10)]
            await until(lambda: quota.refused == 6)  # two are being written and two wait
            assert len(quota) <= quota.in_all
            answer = await served.modern("tools/call", {"name": "large", "arguments": {"size": LARGE}})
            assert answer.status == 200
            telling = [asyncio.create_task(first_line(connection)) for connection in connections]
            await until(lambda: sum(task.done() for task in telling) == 8)
            lines = [task.result()[:12] for task in telling if task.done()]
            assert sorted(lines) == [b"HTTP/1.1 200"] * 2 + [b"HTTP/1.1 503"] * 6
            for task in telling:
                task.cancel()
            await asyncio.gather(*telling, return_exceptions=True)
        await until(lambda: len(quota) == 0)


async def test_refused_response_has_a_reason_and_retry_after() -> None:
    quota = quota_of(per_caller=1000, in_all=10 * LARGE)
    async with http_server(write_timeout=60, quota=quota) as served:
        message, fields = modern(LARGE)
        with ExitStack() as stack:
            connections = [stack.enter_context(asking(served, message, fields)) for _ in range(3)]
            await until(lambda: quota.refused == 1)  # the one that the server read last
            receive = asyncio.get_running_loop().sock_recv
            telling = [asyncio.create_task(receive(connection, 4096)) for connection in connections]
            await until(lambda: sum(task.done() for task in telling) == 2)  # the third one waits
            [said] = [task.result() for task in telling if task.done() and b" 503 " in task.result()[:13]]
            assert b"Retry-After: 30" in said
            assert b"limits.unread" in said
            for task in telling:
                task.cancel()
            await asyncio.gather(*telling, return_exceptions=True)


@pytest.mark.parametrize("kind", KINDS)
async def test_response_over_the_quota_waits_for_room(kind: str) -> None:
    quota = quota_of(per_caller=1000, in_all=1000)
    async with http_server(write_timeout=60, quota=quota) as served:
        message, fields = modern(LARGE)
        with asking(served, message, fields):
            await until(lambda: len(quota) > LARGE)
            message, fields = await of_kind(kind, served)
            waiting = asyncio.create_task(served.send(message, fields))
            await asyncio.sleep(0.05)
            assert not waiting.done()
        async with asyncio.timeout(20):
            answer = await waiting
        assert answer.status == 200
        assert "x" * LARGE in answer.text
        assert (len(quota), quota.refused) == (0, 0)


@pytest.mark.parametrize("kind", KINDS)
async def test_dropping_a_slow_reader_frees_its_quota(kind: str) -> None:
    """Without garbage collection, which might never happen."""
    quota = WriteQuota()
    async with http_server(write_timeout=0.2, quota=quota) as served, counting_memory() as held:
        message, fields = await of_kind(kind, served)
        with asking(served, message, fields):
            await until(lambda: len(quota) > LARGE)
            await until(lambda: len(quota) == 0)
            await until(lambda: held() < LARGE // 2)


async def test_disconnect_frees_the_quota() -> None:
    quota = WriteQuota()
    async with http_server(write_timeout=60, quota=quota) as served, counting_memory() as held:
        message, fields = modern(LARGE)
        with asking(served, message, fields):
            await until(lambda: len(quota) > LARGE)
        await until(lambda: len(quota) == 0)
        await until(lambda: held() < LARGE // 2)


async def test_read_response_is_freed() -> None:
    async with http_server() as served, counting_memory() as held:
        params = {"name": "large", "arguments": {"size": LARGE}}
        answer = await served.modern("tools/call", params)
        assert answer.status == 200
        del answer
        assert held() < LARGE // 2


@asynccontextmanager
async def counting_memory() -> AsyncIterator[Callable[[], int]]:
    """Return a function that measures additional memory without garbage collection."""
    gc.collect()
    gc.disable()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        yield lambda: tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
        gc.enable()


class TestTurns:
    async def test_room_is_granted_in_order(self) -> None:
        quota = quota_of(per_caller=10, in_all=100)
        assert quota.take("a", 10)
        order: list[int] = []

        async def ask(number: int) -> None:
            assert await quota.wait("a", 5, seconds=20)
            order.append(number)

        waiting = [asyncio.create_task(ask(number)) for number in range(2)]
        await asyncio.sleep(0)
        assert not quota.take("a", 1)  # in order
        assert quota.take("b", 10)  # others do not wait
        quota.release("a", 10)
        await asyncio.gather(*waiting)
        assert order == [0, 1]
        assert len(quota) == 20

    async def test_quota_is_not_granted_twice_before_its_use(self) -> None:
        quota = quota_of(per_caller=10, in_all=100)
        assert quota.take("a", 10)
        waiting = asyncio.create_task(quota.wait("a", 5, seconds=20))
        await asyncio.sleep(0)
        quota.release("a", 10)  # granted, but the waiter has not run yet
        assert not quota.take("a", 1)
        assert await waiting
        assert quota.take("a", 1)

    async def test_released_room_belongs_to_a_waiting_response(self) -> None:
        quota = quota_of(per_caller=10, in_all=10)
        assert quota.take("a", 10)
        waiting = asyncio.create_task(quota.wait("b", 10, seconds=20))
        await asyncio.sleep(0)
        quota.release("a", 10)
        assert not quota.take("a", 10)  # the next part of the same stream
        assert await waiting

    async def test_waiting_is_limited_in_time_and_bytes(self) -> None:
        quota = quota_of(per_caller=10, in_all=100)
        assert quota.take("a", 10)
        assert not await quota.wait("a", 5, seconds=0.01)
        quota.release("a", 10)
        assert quota.take("a", 10)
        assert quota.refused == 1

    async def test_total_bytes_are_limited(self) -> None:
        quota = quota_of(per_caller=10, in_all=15)
        assert quota.take("a", 10)
        assert not quota.take("b", 10)
        quota.release("a", 10)
        assert quota.take("b", 1000)

    @pytest.mark.parametrize("is_granted", [False, True])
    async def test_cancelled_wait_frees_its_room(self, *, is_granted: bool) -> None:
        quota = quota_of(per_caller=10, in_all=100)
        assert quota.take("a", 10)
        waiting = asyncio.create_task(quota.wait("a", 10, seconds=20))
        await asyncio.sleep(0)
        if is_granted:
            quota.release("a", 10)
        waiting.cancel()
        with suppress(asyncio.CancelledError):
            if await waiting:
                quota.release("a", 10)
        if not is_granted:
            quota.release("a", 10)
        assert len(quota) == 0
        assert quota.take("a", 10)

    async def test_empty_write_needs_no_room(self) -> None:
        quota = quota_of(per_caller=10, in_all=100)
        assert quota.take("a", 0)
        assert quota.take("a", 0)
        quota.release("a", 0)
        quota.release("a", 0)
        assert len(quota) == 0
