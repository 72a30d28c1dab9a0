"""A long-lived client with version 2.x of the official client, in the legacy era."""

import asyncio
from typing import Any

import httpx2
import mcp_types as types
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from tests.interop.drivers.client_process import execute_commands, read_command, say


async def hear(message: Any) -> None:
    if isinstance(message, types.ResourceUpdatedNotification):
        say(updated=str(message.params.uri))
    elif hasattr(message, "method"):
        say(changed=message.method)


async def main() -> None:
    plan = await read_command()
    shown: list[str | None] = [None]

    async def note_session(request: Any) -> None:
        shown[0] = request.headers.get("mcp-session-id", shown[0])

    timeout = httpx2.Timeout(30, read=300)
    async with httpx2.AsyncClient(timeout=timeout, event_hooks={"request": [note_session]}) as http:
        transport = streamable_http_client(plan["url"], http_client=http)
        async with Client(transport, mode="legacy", message_handler=hear) as client:
            await client.subscribe_resource(plan["uri"])

            async def call(text: str) -> str:
                result = await client.call_tool("echo", {"text": text})
                return str(result.content[0].text)

            await execute_commands(call, lambda: shown[0])


asyncio.run(main())
