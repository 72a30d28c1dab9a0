"""Lists and uses a server with version 2.x of the official client, in the era of the plan."""

from typing import Any

from mcp import Client, StdioServerParameters
from mcp_types import PromptReference, ResourceTemplateReference

from tests.interop.drivers.plans import carry_out_plans
from tests.interop.drivers.walk import Page, Progress, walk


class Second:
    """`Session` over `Client`."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def list_tools(self, cursor: str | None) -> Page:
        result = await self._client.list_tools(cursor=cursor)
        return result.tools, result.next_cursor

    async def list_resources(self, cursor: str | None) -> Page:
        result = await self._client.list_resources(cursor=cursor)
        return result.resources, result.next_cursor

    async def list_resource_templates(self, cursor: str | None) -> Page:
        result = await self._client.list_resource_templates(cursor=cursor)
        return result.resource_templates, result.next_cursor

    async def list_prompts(self, cursor: str | None) -> Page:
        result = await self._client.list_prompts(cursor=cursor)
        return result.prompts, result.next_cursor

    async def call_tool(self, name: str, arguments: dict[str, Any], progress: Progress) -> Any:
        return await self._client.call_tool(name, arguments, progress_callback=progress)

    async def read_resource(self, uri: Any) -> Any:
        return await self._client.read_resource(str(uri))

    async def get_prompt(self, name: str, arguments: dict[str, str]) -> Any:
        return await self._client.get_prompt(name, arguments)

    async def complete(self, kind: str, name: str, argument: str, value: str) -> Any:
        reference = PromptReference(name=name) if kind == "prompt" else ResourceTemplateReference(uri=name)
        return await self._client.complete(reference, {"name": argument, "value": value})


async def carry_out(plan: dict[str, Any]) -> dict[str, Any]:
    server = plan["url"] or StdioServerParameters(
        command=plan["command"][0], args=plan["command"][1:], env=plan["environ"]
    )
    async with Client(server, mode=plan["mode"], read_timeout_seconds=30) as client:
        outcome = await walk(Second(client), plan)
        info = client.server_info
        revision = client.protocol_version
    return {**outcome, "revision": revision, "server": info.name if info else None}


carry_out_plans(carry_out)
