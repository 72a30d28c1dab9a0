"""Log messages for the client: only at the level that it requested, and above."""

from typing import Final

import pytest

from gateway.json_types import Json
from tests.behaviour.cells import LATEST, LATEST_LEGACY, Cell, cells
from tests.behaviour.client import Client
from tests.behaviour.conftest import NewClient
from tests.requirements import requirement

pytestmark = pytest.mark.asyncio(loop_scope="session")

MESSAGE: Final = "notifications/message"
LEVELS: Final = ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]


async def said(client: Client, **fields: str) -> list[str]:
    """Call a tool that logs at all levels, and return the received levels."""
    meta = {"_meta": {f"io.modelcontextprotocol/{name}": value for name, value in fields.items()}} if fields else {}
    call = await client.start("tools/call", {"name": "talk", "arguments": {}, **meta})
    assert (await call.answer()).text == "said"
    heard = call.seen(MESSAGE)
    assert all(params["data"] == {"said": params["level"]} for params in heard)
    assert all(params["logger"] == "talker" for params in heard)
    return [params["level"] for params in heard]


@cells(until=LATEST_LEGACY)
@requirement("logging/set-level", "base/empty-result")
async def test_session_gets_log_messages_of_its_level(cell: Cell, new_client: NewClient) -> None:
    client = await new_client(cell)
    assert await said(client) == []
    for level in ("debug", "warning", "emergency"):
        assert (await client.ask("logging/setLevel", {"level": level})).result == {}
        assert await said(client) == LEVELS[LEVELS.index(level) :]


@cells(until=LATEST_LEGACY)
@requirement("logging/bad-level")
async def test_unknown_log_level_is_invalid_params(client: Client) -> None:
    levels: list[Json] = ["loud", "DEBUG", "", 3, None, [], {}]
    for level in levels:
        assert (await client.ask("logging/setLevel", {"level": level})).error["code"] == -32602
    assert (await client.ask("logging/setLevel")).error["code"] == -32602


@cells(since=LATEST)
@requirement("logging/per-request")
async def test_only_the_request_with_a_log_level_gets_log_messages(client: Client) -> None:
    assert await said(client, logLevel="error") == LEVELS[4:]
    assert await said(client) == []
    assert await said(client, logLevel="debug") == LEVELS
