"""Tests for the in-memory binding."""

import pytest

from gateway.errors import ErrorCode, RpcError
from gateway.json_types import JsonObject
from gateway.transports.memory import MemoryClient
from tests.transports.http_server import ToolControl, dispatching

CLIENT_INFO = {"name": "test", "version": "1"}


async def test_result_is_returned_and_error_is_raised() -> None:
    async with dispatching(ToolControl()) as dispatcher:
        client = MemoryClient(dispatcher, client_info=CLIENT_INFO)
        result = await client.request("tools/call", {"name": "echo", "arguments": {"text": "hi"}})
        assert result["content"][0]["text"] == "hi"
        with pytest.raises(RpcError, match="nope") as raised:
            await client.request("tools/call", {"name": "nope"})
        assert raised.value.code == ErrorCode.INVALID_PARAMS


async def test_progress_precedes_the_result() -> None:
    heard: list[JsonObject] = []

    async def listen(notification: JsonObject) -> None:
        heard.append(notification)

    async with dispatching(ToolControl()) as dispatcher:
        client = MemoryClient(dispatcher, client_info=CLIENT_INFO)
        await client.request("tools/call", {"name": "report"}, on_notification=listen)
        await client.request("tools/call", {"name": "report"})
    assert [message["params"]["progress"] for message in heard] == [1, 2, 3]
