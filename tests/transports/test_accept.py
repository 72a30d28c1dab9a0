"""Tests for parsing `Accept`."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.wire.accept import parse_accept


@pytest.mark.parametrize(
    ("field", "json", "stream", "named"),
    [
        (None, True, True, False),
        ("", True, True, False),
        ("*/*", True, True, False),
        ("application/json, text/event-stream", True, True, True),
        ("text/event-stream", False, True, True),
        ("application/json", True, False, False),
        ("application/*", True, False, False),
        ("Application/JSON;charset=utf-8, TEXT/event-stream; q=0.5", True, True, True),
        ("*/*, application/json;q=0", False, True, False),
        ("application/json, text/event-stream;q=0.0", True, False, False),
        ("text/html, image/png", False, False, False),
        ("application/json;q=banana", True, False, False),
        (",,;;q=", False, False, False),
    ],
)
def test_accept_is_parsed_leniently(
    field: str | None,
    json: bool,  # noqa: FBT001 - a column of the table
    stream: bool,  # noqa: FBT001 - a column of the table
    named: bool,  # noqa: FBT001 - a column of the table
) -> None:
    accepted = parse_accept(field)
    assert (accepted.json, accepted.event_stream, accepted.names_event_stream) == (json, stream, named)


@given(st.text(alphabet=st.sampled_from('*/;,=q.01 application/jsontext/event-stream\t"é'), max_size=80))
def test_any_accept_value_is_parsed(field: str) -> None:
    parse_accept(field)
