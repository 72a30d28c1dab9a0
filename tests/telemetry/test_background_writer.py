"""Tests for the background writer."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from gateway.telemetry.background_writer import BackgroundWriter, write_all


class Memory:
    """A sink that can be told to fail."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self.may_write = threading.Event()
        self.may_write.set()
        self.is_asked = threading.Event()
        self.refusals = 0
        self.is_closed = threading.Event()

    def write(self, lines: Iterator[bytes]) -> None:
        for line in lines:
            self.is_asked.set()
            assert self.may_write.wait(20)
            if self.refusals:
                self.refusals -= 1
                raise OSError("full")
            self.lines.append(line)

    def close(self) -> None:
        self.is_closed.set()


@contextmanager
def writing(sink: Memory, *, max_bytes: int = 1000, retry_seconds: float = 0.001) -> Iterator[BackgroundWriter]:
    writer = BackgroundWriter(
        sink.write,
        name="test",
        max_bytes=max_bytes,
        on_drop=lambda count: b"%d dropped" % count,
        retry_seconds=retry_seconds,
        on_end=sink.close,
    )
    writer.start()
    try:
        yield writer
    finally:
        sink.may_write.set()
        writer.stop(20)


def test_all_lines_are_written_in_order_before_the_end() -> None:
    sink = Memory()
    lines = [b"%d" % number for number in range(300)]
    with writing(sink, max_bytes=10_000) as writer:
        assert all(writer.put(line) for line in lines)
    assert sink.lines == lines
    assert sink.is_closed.is_set()
    assert (writer.written, writer.dropped, writer.waiting) == (300, 0, 0)


def test_lines_over_the_limit_are_dropped_and_reported() -> None:
    sink = Memory()
    sink.may_write.clear()
    with writing(sink, max_bytes=100) as writer:
        taken = [writer.put(b"x" * 10) for _ in range(25)]
        assert taken == [True] * 10 + [False] * 15
        assert (writer.dropped, writer.waiting) == (15, 10)
    assert sink.lines == [b"x" * 10] * 10 + [b"15 dropped"]
    assert (writer.written, writer.unreported) == (11, 0)


def test_line_larger_than_the_limit_is_written_alone() -> None:
    sink = Memory()
    sink.may_write.clear()
    with writing(sink, max_bytes=100) as writer:
        assert [writer.put(b"x" * 1000), writer.put(b"y")] == [True, False]
    assert sink.lines == [b"x" * 1000, b"1 dropped"]


def test_failed_line_is_retried_once() -> None:
    sink = Memory()
    sink.refusals = 3
    with writing(sink) as writer:
        writer.put(b"a")
        writer.put(b"b")
        while sink.refusals:
            assert sink.is_asked.wait(20)
    assert sink.lines == [b"a", b"b"]


def test_end_does_not_wait_for_a_failing_sink() -> None:
    sink = Memory()
    sink.refusals = 1_000_000_000
    with writing(sink, retry_seconds=3600) as writer:
        writer.put(b"a")
        assert sink.is_asked.wait(20)
    assert sink.is_closed.is_set()
    assert (writer.waiting, sink.lines) == (1, [])


def test_lines_before_start_and_after_end_are_ignored() -> None:
    sink = Memory()
    with writing(sink) as writer:
        pass
    assert not writer.put(b"late")
    assert not BackgroundWriter(sink.write, name="test", max_bytes=9, on_drop=lambda _: b"").put(b"early")
    assert sink.lines == []


def test_everything_is_written_to_a_full_non_blocking_pipe() -> None:
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    data = b"x" * 2**20
    received: list[bytes] = []
    with os.fdopen(reading, "rb") as file:
        reader = threading.Thread(target=lambda: received.append(file.read()))
        reader.start()
        assert write_all(writing, data)
        os.close(writing)
        reader.join(60)
    assert received == [data]
