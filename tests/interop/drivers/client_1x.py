"""Lists and uses a server with version 1.x of the official client."""

from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Any

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.types import PaginatedRequestParams, PromptReference, ResourceTemplateReference
from pydantic import AnyUrl

from tests.interop.drivers.plans import carry_out_plans
from tests.interop.drivers.walk import Page, Progress, walk


class First:
    """`Session` over `ClientSession`."""

    def __init__(self, session: ClientSession) -> None:
        self._session = session

    async def list_tools(self, cursor: str | None) -> Page:
        result = await self._session.list_tools(params=_from(cursor))
        return result.tools, result.nextCursor

    async def list_resources(self, cursor: str | None) -> Page:
        result = await self._session.list_resources(params=_from(cursor))
        return result.resources, result.nextCursor

    async def list_resource_templates(self, cursor: str | None) -> Page:
        result = await self._session.list_resource_templates(params=_from(cursor))
        return result.resourceTemplates, result.nextCursor

    async def list_prompts(self, cursor: str | None) -> Page:
        result = await self._session.list_prompts(params=_from(cursor))
        return result.prompts, result.nextCursor

    async def call_tool(self, name: str, arguments: dict[str, Any], progress: Progress) -> Any:
        return await self._session.call_tool(name, arguments, progress_callback=progress)

    async def read_resource(self, uri: Any) -> Any:
        return await self._session.read_resource(AnyUrl(str(uri)))

    async def get_prompt(self, name: str, arguments: dict[str, str]) -> Any:
        return await self._session.get_prompt(name, arguments)

    async def complete(self, kind: str, name: str, argument: str, value: str) -> Any:
        reference = (
            PromptReference(type="ref/prompt", name=name)
            if kind == "prompt"
            else ResourceTemplateReference(type="ref/resource", uri=name)
        )
        return await self._session.complete(reference, {"name": argument, "value": value})


def _from(cursor: str | None) -> Any:
    return PaginatedRequestParams(cursor=cursor)


async def carry_out(plan: dict[str, Any]) -> dict[str, Any]:
    async with AsyncExitStack() as stack:
        if plan["url"]:
            read, write, _ = await stack.enter_async_context(streamable_http_client(plan["url"]))
        else:
            server = StdioServerParameters(command=plan["command"][0], args=plan["command"][1:], env=plan["environ"])
            read, write = await stack.enter_async_context(stdio_client(server))
        session = ClientSession(read, write, read_timeout_seconds=timedelta(seconds=30))
        await stack.enter_async_context(session)
        answer = await session.initialize()
        outcome = await walk(First(session), plan)
    return {**outcome, "revision": answer.protocolVersion, "server": answer.serverInfo.name}


carry_out_plans(carry_out)
