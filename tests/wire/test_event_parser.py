"""Tests for parsing event streams (WHATWG HTML, "Parsing an event stream")."""

import pytest

from gateway.wire.event_parser import Event, EventParser, EventTooLargeError

STREAM = b"\xef\xbb\xbfdata: one\r\n\r\nid: 2\ndata: \xef\xbb\xbftwo\n\n"


@pytest.mark.parametrize("size", [1, 2, 3, 5, len(STREAM)])
def test_byte_order_mark_is_only_removed_at_the_start(size: int) -> None:
    parser = EventParser()
    pieces = [STREAM[at : at + size] for at in range(0, len(STREAM), size)]
    events = [event for piece in pieces for event in parser.feed(piece)]
    assert events == [Event(data=b"one"), Event(data=b"\xef\xbb\xbftwo", id="2")]


@pytest.mark.parametrize("size", [1, 2, 3, 5, 100])
def test_line_ends_are_recognized_in_any_chunks(size: int) -> None:
    stream = b"\xef\xbb\xbf\n\ndata: one\rdata: two\r\n\r\rdata: three\n\r\n\rid: 4\r\n\ndata: five\n\n"
    parser = EventParser()
    pieces = [stream[at : at + size] for at in range(0, len(stream), size)]
    events = [(event.data, event.id) for piece in pieces for event in parser.feed(piece)]
    assert events == [(b"one\ntwo", None), (b"three", None), (b"", "4"), (b"five", None)]


def test_short_stream_does_not_wait_for_a_byte_order_mark() -> None:
    assert list(EventParser().feed(b"\xef\n\n")) == []
    assert [event.retry_ms for event in EventParser().feed(b"retry:1\n\n")] == [1]
    for digits in (b"9" * 400, b"9" * 5000):
        [event] = EventParser().feed(b"retry: " + digits + b"\n\n")
        assert event.retry_ms == 10**10


@pytest.mark.parametrize("line", [b"data\n", b"data:\n", b"data: 12345\n"])
def test_event_of_many_lines_is_limited(line: bytes) -> None:
    parser = EventParser(max_event=1000)
    with pytest.raises(EventTooLargeError):
        list(parser.feed(line * 1001))
