"""The buffer keeps the head and tail of a stream."""

from hypothesis import given
from hypothesis import strategies as st

from gateway.processes.pipes import BoundedBuffer


@given(limit=st.integers(2, 40), chunks=st.lists(st.binary(max_size=30), max_size=20), size=st.integers(1, 50))
def test_buffer_keeps_head_and_tail(limit: int, chunks: list[bytes], size: int) -> None:
    capture, whole = BoundedBuffer(limit), b"".join(chunks)
    for chunk in chunks:
        capture.feed(chunk)
    if len(whole) <= limit:
        assert (capture.data, capture.omitted) == (whole, 0)
    else:
        tail = limit - limit // 2
        assert (capture.data, capture.omitted) == (whole[: limit // 2] + whole[-tail:], len(whole) - limit)
    assert whole.endswith(capture.end(size))
    assert len(capture.end(size)) == min(size, len(whole)) or capture.omitted
