"""Tests for writing lines to slow or closed readers."""

import asyncio
import os
import tracemalloc
from collections.abc import Iterator
from contextlib import suppress

import pytest

from gateway.transports.stdio.line_writer import LineWriter
from tests.waiting import until


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    reading, writing = os.pipe()
    yield reading, writing
    for descriptor in (reading, writing):
        with suppress(OSError):  # the test can have closed it
            os.close(descriptor)


def read_everything(descriptor: int) -> bytes:
    chunks = []
    while chunk := os.read(descriptor, 1 << 16):
        chunks.append(chunk)
    return b"".join(chunks)


async def test_lines_of_any_length_arrive_in_order(pipe: tuple[int, int]) -> None:
    reading, writing = pipe
    lines = [bytes([97 + n % 26]) * (n * 9973 % 200_000) for n in range(60)]
    reader = asyncio.create_task(asyncio.to_thread(read_everything, reading))
    writer = LineWriter(writing)
    async with asyncio.timeout(20):
        for line in lines:
            await writer.write(line)
        await writer.close(10)
        os.close(writing)
        assert (await reader).split(b"\n") == [*lines, b""]


async def test_concurrent_lines_do_not_mix(pipe: tuple[int, int]) -> None:
    reading, writing = pipe
    lines = [bytes([97 + n]) * 50_000 for n in range(26)]
    reader = asyncio.create_task(asyncio.to_thread(read_everything, reading))
    writer = LineWriter(writing)
    async with asyncio.timeout(20):
        await asyncio.gather(*map(writer.write, lines))
        await writer.close(10)
        os.close(writing)
        assert sorted((await reader).split()) == lines


async def test_writer_waits_for_a_slow_reader_without_blocking_the_loop(pipe: tuple[int, int]) -> None:
    reading, writing = pipe
    writer = LineWriter(writing)
    written = 0

    async def flood() -> None:
        nonlocal written
        for _ in range(1000):
            await writer.write(b"x" * 100_000)
            written += 1

    flooding = asyncio.create_task(flood())
    await until(lambda: not writer.has_capacity)
    assert written < 20
    flooding.cancel()
    await writer.close(0)
    os.close(reading)


async def test_lines_after_a_disconnect_are_dropped(pipe: tuple[int, int]) -> None:
    reading, writing = pipe
    writer = LineWriter(writing)
    os.close(reading)
    async with asyncio.timeout(10):
        await writer.write(b"small")
        await writer.gone.wait()
        await writer.write(b"x" * 1_000_000)
        await writer.close(5)


async def test_disconnect_during_a_long_line_wakes_waiting_writers(pipe: tuple[int, int]) -> None:
    reading, writing = pipe
    writer = LineWriter(writing)
    async with asyncio.timeout(10):
        waiting = asyncio.create_task(writer.write(b"x" * 5_000_000))
        await asyncio.to_thread(os.read, reading, 100)
        os.close(reading)
        await waiting
        await writer.gone.wait()


async def test_waiting_lines_are_not_copied(pipe: tuple[int, int]) -> None:
    reading, writing = pipe
    writer, line = LineWriter(writing), b"x" * 4_000_000
    tracemalloc.start()
    try:
        waiting = [asyncio.create_task(writer.write(line)) for _ in range(50)]
        await until(lambda: not writer.has_capacity)
        await asyncio.sleep(0)
        assert tracemalloc.get_traced_memory()[1] < 3 * len(line)
    finally:
        tracemalloc.stop()
        os.close(reading)
        await writer.close(0)
        await asyncio.gather(*waiting)
