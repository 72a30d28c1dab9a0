"""Tests for reading lines from descriptors."""

import asyncio
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.transports.stdio.line_reader import LineReader

LIMIT = 3_000_000


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    reading, writing = os.pipe()
    yield reading, writing
    for descriptor in (reading, writing):
        with suppress(OSError):  # the test can have closed it
            os.close(descriptor)


async def every_line(reader: LineReader) -> list[bytes]:
    lines: list[bytes] = []
    async with asyncio.timeout(10):
        while (line := await reader.next()) is not None:
            lines.append(line)
    return lines


async def fed(pipe: tuple[int, int], *chunks: bytes, limit: int = LIMIT) -> list[bytes]:
    """Return the lines that a reader makes of these chunks."""
    reading, writing = pipe

    def write() -> None:
        for chunk in chunks:
            view = memoryview(chunk)
            while view:
                view = view[os.write(writing, view) :]
        os.close(writing)

    writer = asyncio.create_task(asyncio.to_thread(write))
    lines = await every_line(LineReader(reading, limit=limit))
    await writer
    return lines


async def test_lines_are_joined_from_any_chunks(pipe: tuple[int, int]) -> None:
    assert await fed(pipe, b"on", b"e\ntw", b"o\r\n", b"\nthree\n") == [b"one", b"two", b"", b"three"]


async def test_line_can_be_longer_than_any_buffer(pipe: tuple[int, int]) -> None:
    long = b"x" * 2_500_000
    assert await fed(pipe, long + b"\nshort\n") == [long, b"short"]


async def test_line_over_the_limit_is_truncated(pipe: tuple[int, int]) -> None:
    lines = await fed(pipe, b"a\n" + b"x" * 500_000 + b"\nb\n", limit=1000)
    assert lines == [b"a", b"x" * 1001, b"b"]


async def test_only_a_line_over_the_limit_is_skipped(pipe: tuple[int, int]) -> None:
    assert await fed(pipe, b"1234\n12345\n", limit=4) == [b"1234", b"12345"]


async def test_several_lines_over_the_limit_are_each_returned_truncated(pipe: tuple[int, int]) -> None:
    over = b"x" * 100_000 + b"\n"
    assert await fed(pipe, over + over + b"ok\n", limit=10) == [over[:11], over[:11], b"ok"]


async def test_last_line_needs_no_line_break(pipe: tuple[int, int]) -> None:
    assert await fed(pipe, b"one\ntwo") == [b"one", b"two"]


async def test_file_is_read_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "requests"
    path.write_bytes(b"one\n" + b"x" * 300_000 + b"\nthree")
    descriptor = os.open(path, os.O_RDONLY)
    try:
        lines = await every_line(LineReader(descriptor, limit=LIMIT))
    finally:
        os.close(descriptor)
    assert lines == [b"one", b"x" * 300_000, b"three"]


async def test_dev_null_is_an_end_at_once() -> None:
    descriptor = os.open(os.devnull, os.O_RDONLY)
    try:
        assert await every_line(LineReader(descriptor, limit=LIMIT)) == []
    finally:
        os.close(descriptor)


async def test_terminal_is_read_line_by_line() -> None:
    controller, terminal = os.openpty()
    try:
        reader = LineReader(terminal, limit=LIMIT)
        os.write(controller, b"hello\n")
        async with asyncio.timeout(20):
            assert await reader.next() == b"hello"
        reader.end()
    finally:
        os.close(controller)
        os.close(terminal)


async def test_close_wakes_the_reader_and_keeps_the_descriptor_open(pipe: tuple[int, int]) -> None:
    reader = LineReader(pipe[0], limit=LIMIT)
    waiting = asyncio.create_task(reader.next())
    await asyncio.sleep(0)
    reader.end()
    async with asyncio.timeout(20):
        assert await waiting is None
    os.write(pipe[1], b"still open")
    assert os.read(pipe[0], 100) == b"still open"


async def test_reading_pauses_without_a_consumer(pipe: tuple[int, int]) -> None:
    reading, writing = pipe
    os.set_blocking(writing, False)
    reader = LineReader(reading, limit=LIMIT)
    os.write(writing, b"first\n")
    async with asyncio.timeout(20):
        assert await reader.next() == b"first"
    sent = 0
    idle_rounds = 0
    while idle_rounds < 50:
        try:
            sent += os.write(writing, b"y" * 4095 + b"\n")
            idle_rounds = 0
        except BlockingIOError:
            idle_rounds += 1
            await asyncio.sleep(0)
    assert sent < 1_000_000
    reader.end()


@given(chunks=st.lists(st.text(alphabet="ab\n", max_size=12).map(str.encode), max_size=12), limit=st.integers(1, 8))
def test_chunking_does_not_change_the_lines(chunks: list[bytes], limit: int) -> None:
    whole = b"".join(chunks)
    *lines, last = whole.split(b"\n")
    expected = [line[: limit + 1] for line in (*lines, *([last] if last else []))]

    async def read() -> list[bytes]:
        ends = os.pipe()
        try:
            return await fed(ends, *chunks, limit=limit)
        finally:
            os.close(ends[0])

    assert asyncio.run(read()) == expected
