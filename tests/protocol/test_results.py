"""Conversion of results and errors to messages of the client's revision."""

import orjson
import pytest

from gateway.errors import ErrorCode, MissingCapabilityError, RpcError
from gateway.executors.invocation import ToolResult
from gateway.protocol.results import error_reply, tool_result


@pytest.mark.parametrize(
    "error", [MissingCapabilityError({"sampling": {}}), RpcError(ErrorCode.HEADER_MISMATCH, "differs", {"a": 1})]
)
def test_errors_of_2026_07_28_are_internal_errors_in_older_revisions(error: RpcError) -> None:
    reply = error_reply(error, request_id=1, revision="2025-11-25")
    assert reply.status == 200
    assert orjson.loads(reply.body or b"")["error"] == {"code": -32603, "message": error.message}


def test_tool_result_keeps_the_meta_of_the_backend() -> None:
    assert tool_result(ToolResult(content=(), meta={"a": 1}), "2026-07-28") == {"content": [], "_meta": {"a": 1}}
