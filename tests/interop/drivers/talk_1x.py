"""Runs the steps of `talk` with version 1.x of the official client."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from typing import Any

from mcp import ClientSession, StdioServerParameters, types
from mcp.client.sse import sse_client
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from pydantic import AnyUrl

from tests.interop.drivers.plans import carry_out_plans
from tests.interop.drivers.talk import ClientHandlers, Progress, talk


class First:
    """`Talker` over `ClientSession`."""

    def __init__(self, handlers: ClientHandlers) -> None:
        self._handlers = handlers
        self.changed = asyncio.Event()
        self._updated = asyncio.Event()
        self._request_ids: dict[str, int] = {}
        self.session: ClientSession

    async def call(self, name: str, arguments: dict[str, Any], progress: Progress | None = None) -> Any:
        self._request_ids[name] = self.session._request_id  # the client does not expose the next request id
        return await self.session.call_tool(name, arguments, progress_callback=progress)

    async def ask_for_logs(self) -> None:
        await self.session.set_logging_level("warning")

    async def cancel(self, calling: "asyncio.Task[Any]") -> None:
        params = types.CancelledNotificationParams(requestId=self._request_ids[calling.get_name()])
        await self.session.send_notification(types.ClientNotification(types.CancelledNotification(params=params)))

    @asynccontextmanager
    async def changes(self) -> AsyncIterator[asyncio.Event]:
        self.changed.clear()
        yield self.changed

    async def watch(self, uri: str) -> asyncio.Event:
        await self.session.subscribe_resource(AnyUrl(uri))
        return self._updated

    async def tools(self) -> list[str]:
        return [tool.name for tool in (await self.session.list_tools()).tools]

    async def hear(self, message: Any) -> None:
        if isinstance(getattr(message, "root", None), types.ToolListChangedNotification):
            self.changed.set()
        if isinstance(getattr(message, "root", None), types.ResourceUpdatedNotification):
            self._updated.set()

    async def log(self, params: Any) -> None:
        self._handlers.logged.append([params.level, params.data])

    async def fill_in(self, _context: Any, params: Any) -> Any:
        action, content = self._handlers.fill_in(params.message, getattr(params, "requestedSchema", None))
        return types.ElicitResult(action=action, content=content)

    async def speak(self, _context: Any, params: Any) -> Any:
        text = self._handlers.speak(params.messages[-1].content.text)
        content = types.TextContent(type="text", text=text)
        return types.CreateMessageResult(role="assistant", content=content, model="parrot")

    async def roots(self, _context: Any) -> Any:
        return types.ListRootsResult(roots=[types.Root(uri="file:///home/ada", name="home")])


@asynccontextmanager
async def connected(plan: Any, handlers: ClientHandlers) -> AsyncIterator[tuple[First, str]]:
    """Yield a client and its revision."""
    talker = First(handlers)
    async with AsyncExitStack() as stack:
        if plan["binding"] == "stdio":
            server = StdioServerParameters(command=plan["command"][0], args=plan["command"][1:], env=plan["environ"])
            read, write = await stack.enter_async_context(stdio_client(server))
        elif plan["binding"] == "sse":
            read, write = await stack.enter_async_context(sse_client(plan["url"]))
        else:
            read, write, _ = await stack.enter_async_context(streamable_http_client(plan["url"]))
        talker.session = await stack.enter_async_context(
            ClientSession(
                read,
                write,
                read_timeout_seconds=timedelta(seconds=plan.get("patience", 30)),
                sampling_callback=talker.speak,
                elicitation_callback=talker.fill_in,
                list_roots_callback=talker.roots,
                logging_callback=talker.log,
                message_handler=talker.hear,
            )
        )
        yield talker, (await talker.session.initialize()).protocolVersion


async def carry_out(plan: dict[str, Any]) -> dict[str, Any]:
    handlers = ClientHandlers()
    async with connected(plan, handlers) as (talker, revision):
        outcome = await talk(talker, handlers, plan)
    return {**outcome, "revision": revision}


if __name__ == "__main__":
    carry_out_plans(carry_out)
