"""A long-lived client with version 1.x of the official client."""

import asyncio
from typing import Any

from mcp import ClientSession, types
from mcp.client.streamable_http import streamable_http_client
from pydantic import AnyUrl

from tests.interop.drivers.client_process import execute_commands, read_command, say


async def hear(message: Any) -> None:
    notification: Any = getattr(message, "root", None)
    if isinstance(notification, types.ResourceUpdatedNotification):
        say(updated=str(notification.params.uri))
    elif hasattr(notification, "method"):
        say(changed=notification.method)


async def main() -> None:
    plan = await read_command()
    async with (
        streamable_http_client(plan["url"]) as (read, write, session_id),
        ClientSession(read, write, message_handler=hear) as session,
    ):
        await session.initialize()
        await session.subscribe_resource(AnyUrl(plan["uri"]))

        async def call(text: str) -> str:
            result = await session.call_tool("echo", {"text": text})
            return str(result.content[0].text)

        await execute_commands(call, session_id)


asyncio.run(main())
