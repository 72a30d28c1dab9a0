"""Runs the steps of `talk` with version 2.x of the official client, in the era of the plan."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import mcp_types as types
from mcp import Client, StdioServerParameters
from mcp.client.sse import sse_client
from mcp.client.subscriptions import ResourceUpdated, SubscriptionLost
from mcp.shared.exceptions import MCPError

from tests.interop.drivers.plans import carry_out_plans
from tests.interop.drivers.talk import ClientHandlers, Progress, talk


class Second:
    """`Talker` over `Client`."""

    def __init__(self, handlers: ClientHandlers) -> None:
        self._handlers = handlers
        self.changed = asyncio.Event()
        self._updated = asyncio.Event()
        self._watching: asyncio.Task[None] | None = None
        self.client: Client

    @property
    def is_modern(self) -> bool:
        return bool(self.client.protocol_version >= "2026")

    async def call(self, name: str, arguments: dict[str, Any], progress: Progress | None = None) -> Any:
        return await self.client.call_tool(name, arguments, progress_callback=progress)

    async def ask_for_logs(self) -> None:
        if not self.is_modern:  # modern requests contain the level
            await self.client.set_logging_level("warning")

    async def cancel(self, calling: "asyncio.Task[Any]") -> None:
        calling.cancel()

    @asynccontextmanager
    async def changes(self) -> AsyncIterator[asyncio.Event]:
        self.changed.clear()
        if not self.is_modern:
            yield self.changed
            return
        async with self.client.listen(tools_list_changed=True) as subscription:
            listening = asyncio.create_task(self._listen(subscription))
            yield self.changed
            listening.cancel()

    async def watch(self, uri: str) -> asyncio.Event:
        if self.is_modern:
            self._watching = asyncio.create_task(self._watch(uri))
        else:
            await self.client.subscribe_resource(uri)
        return self._updated

    async def tools(self) -> list[str]:
        return [tool.name for tool in (await self.client.list_tools(cache_mode="refresh")).tools]

    async def hear(self, message: Any) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            self.changed.set()
        if isinstance(message, types.ResourceUpdatedNotification):
            self._updated.set()

    async def log(self, params: Any) -> None:
        self._handlers.logged.append([params.level, params.data])

    async def fill_in(self, _context: Any, params: Any) -> Any:
        action, content = self._handlers.fill_in(params.message, getattr(params, "requested_schema", None))
        return types.ElicitResult(action=action, content=content)

    async def speak(self, _context: Any, params: Any) -> Any:
        text = self._handlers.speak(params.messages[-1].content.text)
        content = types.TextContent(type="text", text=text)
        return types.CreateMessageResult(role="assistant", content=content, model="parrot")

    async def roots(self, _context: Any) -> Any:
        return types.ListRootsResult(roots=[types.Root(uri="file:///home/ada", name="home")])

    async def _watch(self, uri: str) -> None:
        """Listen repeatedly. After each interruption, list everything, because it can have changed."""
        while True:
            with suppress(SubscriptionLost, MCPError, TimeoutError):
                async with self.client.listen(tools_list_changed=True, resource_subscriptions=[uri]) as subscription:
                    async for event in subscription:
                        (self._updated if isinstance(event, ResourceUpdated) else self.changed).set()
            await asyncio.sleep(0.1)

    async def _listen(self, subscription: Any) -> None:
        async for _event in subscription:
            self.changed.set()


def server_of(plan: Any) -> Any:
    if plan["binding"] == "stdio":
        return StdioServerParameters(command=plan["command"][0], args=plan["command"][1:], env=plan["environ"])
    return sse_client(plan["url"]) if plan["binding"] == "sse" else plan["url"]


@asynccontextmanager
async def connected(plan: Any, handlers: ClientHandlers) -> AsyncIterator[tuple[Second, str]]:
    """Yield a client and its revision."""
    talker = Second(handlers)
    async with Client(
        server_of(plan),
        mode=plan["mode"],
        read_timeout_seconds=plan.get("patience", 30),
        sampling_callback=talker.speak,
        elicitation_callback=talker.fill_in,
        list_roots_callback=talker.roots,
        logging_callback=talker.log,
        log_level="warning",
        message_handler=talker.hear,
    ) as talker.client:
        try:
            yield talker, talker.client.protocol_version
        finally:
            if talker._watching is not None:
                talker._watching.cancel()


async def carry_out(plan: dict[str, Any]) -> dict[str, Any]:
    handlers = ClientHandlers()
    async with connected(plan, handlers) as (talker, revision):
        outcome = await talk(talker, handlers, plan)
    return {**outcome, "revision": revision}


if __name__ == "__main__":
    carry_out_plans(carry_out)
