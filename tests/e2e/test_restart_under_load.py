"""A daemon with an inherited socket is restarted under load, and no call fails.

The test lasts six seconds, at a rate that a small machine can sustain. MCP_GATEWAY_TEST_LOAD=500x30 makes five hundred
calls per second for thirty seconds.
"""

import asyncio
import os
import signal
import socket
from pathlib import Path

import aiohttp
import pytest

from gateway.json_types import Json
from tests.e2e.daemon import serving
from tests.e2e.load import Load
from tests.messages import MODERN, modern_request

FILE = """\
server: {page_size: 1}
tools:
  echo: {description: Repeat a text., input: {text: string}, content: [{text: "{{ text }}"}]}
  other: {description: Makes a second page., content: [{text: x}]}
  third: {description: Makes a third page., content: [{text: x}]}
"""
CLIENTS, LEGACY = 40, 10


@pytest.mark.build
async def test_no_call_fails_and_sessions_continue(tmp_path: Path) -> None:
    rate, seconds = map(int, os.environ.get("MCP_GATEWAY_TEST_LOAD", "100x6").split("x"))
    config = tmp_path / "config.yaml"
    config.write_text(FILE)
    environment = {"MCP_GATEWAY_SECRET_KEY": "the same for both"}
    with socket.create_server(("127.0.0.1", 0), backlog=4096) as listening:
        url = f"http://127.0.0.1:{listening.getsockname()[1]}/mcp"
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(connector=connector) as http:
            load = Load(url=url, http=http)
            async with serving(config, sockets=[listening], environment=environment) as first:
                await first.url()
                calling = asyncio.create_task(load.run(rate=rate, seconds=seconds, clients=CLIENTS, legacy=LEGACY))
                await in_the_middle(load, calls=rate * seconds)
                first.signal(signal.SIGTERM)
                assert await first.exit_code() == 0
            async with serving(config, sockets=[listening], environment=environment) as second:
                await second.url()
                await calling
                second.signal(signal.SIGTERM)
                assert await second.exit_code() == 0
    counts = load.counts
    assert counts.failures == [], counts
    assert counts.answered == rate * seconds
    assert counts.initialized == dict.fromkeys(range(LEGACY), 1), counts


async def in_the_middle(load: Load, *, calls: int) -> None:
    """Wait until half of the calls have responses, and every legacy client has a session."""
    async with asyncio.timeout(60):
        while load.counts.answered < calls / 2 or len(load.counts.initialized) < LEGACY:
            await asyncio.sleep(0.01)


ASKING = """\
tools:
  wipe: {description: Asks first., confirm: "Really?", content: [{text: wiped}]}
"""


async def test_question_survives_a_restart(tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(ASKING)
    environment = {"MCP_GATEWAY_SECRET_KEY": "the same for both"}
    fields = {"MCP-Protocol-Version": MODERN, "Mcp-Method": "tools/call", "Mcp-Name": "wipe"}
    able: dict[str, Json] = {"_meta": {"io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}}}}
    with socket.create_server(("127.0.0.1", 0)) as listening:
        url = f"http://127.0.0.1:{listening.getsockname()[1]}/mcp"

        async def called(**more: Json) -> Json:
            body = modern_request("tools/call", {"name": "wipe", "arguments": {}, **able, **more})
            async with aiohttp.ClientSession() as client, client.post(url, json=body, headers=fields) as response:
                return (await response.json())["result"]

        async with serving(config, sockets=[listening], environment=environment) as first:
            asked = await called()
            first.signal(signal.SIGTERM)
            assert await first.exit_code() == 0
        yes = {key: {"action": "accept", "content": {}} for key in asked["inputRequests"]}
        async with serving(config, sockets=[listening], environment=environment):
            answer = await called(inputResponses=yes, requestState=asked["requestState"])
    assert answer["content"][0]["text"] == "wiped"
