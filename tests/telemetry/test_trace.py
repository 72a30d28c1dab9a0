"""Tests for parsing trace contexts."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.json_types import Json
from gateway.telemetry.trace import TraceContext, Untraced, read_trace

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
ZEROS = "0" * 32


@pytest.mark.parametrize("parent", [PARENT, PARENT[:-2] + "00", "01" + PARENT[2:], f"cc{PARENT[2:]}-what-comes-later"])
def test_valid_trace_context_is_used(parent: str) -> None:
    found = read_trace({"traceparent": parent})
    assert found == TraceContext(parent=parent)
    assert found.trace_id == "0af7651916cd43dd8448eb211c80319c"
    assert found.fields == {"traceparent": parent}


@pytest.mark.parametrize(
    "parent",
    [
        None,
        7,
        "",
        PARENT.upper(),
        f"{PARENT}\n",
        f" {PARENT}",
        f"{PARENT}-more",
        f"{PARENT}, {PARENT}",
        f"ff{PARENT[2:]}",
        f"01{PARENT[2:]}more",
        f"00-{ZEROS}-b7ad6b7169203331-01",
        f"00-0af7651916cd43dd8448eb211c80319c-{ZEROS[:16]}-01",
    ],
)
def test_malformed_trace_context_is_ignored(parent: Json) -> None:
    assert read_trace({"traceparent": parent, "tracestate": "a=1"}) is None


@pytest.mark.parametrize("state", ["", 7, "a=1\nX-Evil: 1", "a=\0", "é=1", "a" * 513])
def test_malformed_tracestate_is_dropped(state: Json) -> None:
    assert read_trace({"traceparent": PARENT, "tracestate": state}) == TraceContext(parent=PARENT)


def test_trace_context_is_propagated_without_spans() -> None:
    context = TraceContext(parent=PARENT, state="a=1,b=2")
    with Untraced(context).step("shell", kind="internal", facts={}) as step:
        assert step.context is context
    assert context.fields == {"traceparent": PARENT, "tracestate": "a=1,b=2"}


@given(
    parent=st.text() | st.from_regex(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}.*", fullmatch=True),
    state=st.text() | st.none(),
)
def test_trace_context_is_safe_in_headers_and_environments(parent: str, state: str | None) -> None:
    found = read_trace({"traceparent": parent, "tracestate": state})
    if found is not None:
        assert all(re.fullmatch("[ -~]+", value) for value in found.fields.values())
