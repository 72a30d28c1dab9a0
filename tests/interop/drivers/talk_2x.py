"""Talks with a server as the official client's second line does, in the era that the plan names."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import mcp_types as types
from mcp import Client, StdioServerParameters
from mcp.client.sse import sse_client

from tests.interop.drivers.talk import Desk, Progress, talk
from tests.interop.drivers.walk import read_plan, report


class Second:
    """`Talker` over `Client`."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._changed = asyncio.Event()
        self.client: Client

    @property
    def is_modern(self) -> bool:
        return bool(self.client.protocol_version >= "2026")

    async def call(self, name: str, arguments: dict[str, Any], progress: Progress | None = None) -> Any:
        return await self.client.call_tool(name, arguments, progress_callback=progress)

    async def ask_for_logs(self) -> None:
        if not self.is_modern:  # there each request says so
            await self.client.set_logging_level("warning")

    async def cancel(self, calling: "asyncio.Task[Any]") -> None:
        calling.cancel()

    @asynccontextmanager
    async def changes(self) -> AsyncIterator[asyncio.Event]:
        self._changed.clear()
        if not self.is_modern:
            yield self._changed
            return
        async with self.client.listen(tools_list_changed=True) as subscription:
            listening = asyncio.create_task(self._listen(subscription))
            yield self._changed
            listening.cancel()

    async def tools(self) -> list[str]:
        return [tool.name for tool in (await self.client.list_tools(cache_mode="refresh")).tools]

    async def hear(self, message: Any) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            self._changed.set()

    async def log(self, params: Any) -> None:
        self._desk.logged.append([params.level, params.data])

    async def fill_in(self, _context: Any, params: Any) -> Any:
        action, content = self._desk.fill_in(params.message, getattr(params, "requested_schema", None))
        return types.ElicitResult(action=action, content=content)

    async def speak(self, _context: Any, params: Any) -> Any:
        text = self._desk.speak(params.messages[-1].content.text)
        content = types.TextContent(type="text", text=text)
        return types.CreateMessageResult(role="assistant", content=content, model="parrot")

    async def roots(self, _context: Any) -> Any:
        return types.ListRootsResult(roots=[types.Root(uri="file:///home/ada", name="home")])

    async def _listen(self, subscription: Any) -> None:
        async for _event in subscription:
            self._changed.set()


def server_of(plan: Any) -> Any:
    if plan["binding"] == "stdio":
        return StdioServerParameters(command=plan["command"][0], args=plan["command"][1:], env=plan["environ"])
    return sse_client(plan["url"]) if plan["binding"] == "sse" else plan["url"]


async def main() -> None:
    plan, desk = read_plan(), Desk()
    talker = Second(desk)
    async with Client(
        server_of(plan),
        mode=plan["mode"],
        read_timeout_seconds=30,
        sampling_callback=talker.speak,
        elicitation_callback=talker.fill_in,
        list_roots_callback=talker.roots,
        logging_callback=talker.log,
        log_level="warning",
        message_handler=talker.hear,
    ) as talker.client:
        outcome = await talk(talker, desk, plan)
        revision = talker.client.protocol_version
    report({**outcome, "revision": revision})


asyncio.run(main())
