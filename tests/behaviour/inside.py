"""A gateway in this process, with a client in memory or over HTTP."""

import json
import textwrap
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

import aiohttp

from gateway.app.gateway import Gateway
from gateway.config.settings import read_settings
from gateway.errors import RpcError
from gateway.json_types import Json, JsonObject
from gateway.transports.memory import Listener, MemoryClient

NO_FILES: Mapping[str, str | bytes] = MappingProxyType({})


class Client:
    """A client in memory."""

    def __init__(self, gateway: Gateway) -> None:
        self.gateway = gateway
        self._client: MemoryClient = gateway.memory_client()

    async def request(self, method: str, params: JsonObject | None = None, **given: Listener) -> JsonObject:
        return await self._client.request(method, params, **given)

    async def call(self, tool: str, /, **arguments: Json) -> JsonObject:
        return await self.request("tools/call", {"name": tool, "arguments": arguments})

    async def text(self, tool: str, /, **arguments: Json) -> str:
        """Return the text of the tool's only content block."""
        [block] = (await self.call(tool, **arguments))["content"]
        assert isinstance(block["text"], str)
        return block["text"]

    async def value(self, tool: str, /, **arguments: Json) -> Any:
        """Return the structured content of a result, or its text."""
        result = await self.call(tool, **arguments)
        return result.get("structuredContent") or result["content"][0]["text"]

    async def read(self, uri: str) -> JsonObject:
        """Return the only item of the contents of a resource."""
        [contents] = (await self.request("resources/read", {"uri": uri}))["contents"]
        found: JsonObject = contents
        return found

    async def prompt(self, name: str, /, **arguments: str) -> list[JsonObject]:
        messages: list[JsonObject] = (await self.request("prompts/get", {"name": name, "arguments": arguments}))[
            "messages"
        ]
        return messages

    async def error(self, method: str, params: JsonObject) -> RpcError:
        """Return the error of a request."""
        try:
            answer = await self.request(method, params)
        except RpcError as error:
            return error
        raise AssertionError(f"{method} was answered: {answer}")


@asynccontextmanager
async def product(folder: Path, text: str, files: Mapping[str, str | bytes] = NO_FILES) -> AsyncIterator[Client]:
    """Write `files` and a configuration to `folder`, and serve it."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else textwrap.dedent(content).encode())
    config = folder / "config.yaml"
    config.write_text(textwrap.dedent(text), encoding="utf-8")
    settings = read_settings({"config": config, "log_level": "error", "no_watch": True})
    async with Gateway(settings, serves_one_request=True) as gateway:  # waits longer for the lists of upstreams
        yield Client(gateway)


@asynccontextmanager
async def served_over_http(
    folder: Path, text: str, **settings: Any
) -> AsyncIterator[tuple[Gateway, aiohttp.ClientSession]]:
    """Serve a configuration over HTTP, and yield the gateway and a client."""
    config = folder / "config.yaml"
    config.write_text(text, encoding="utf-8")
    options = {"config": config, "log_level": "error", "no_watch": True, "http": "127.0.0.1:0", **settings}
    async with Gateway(read_settings(options)) as gateway, aiohttp.ClientSession() as client:
        await gateway.start()
        yield gateway, client


def on_database(
    folder: Path, url: str, tools: dict[str, dict[str, Any]], **settings: Json
) -> AbstractAsyncContextManager[Client]:
    """Serve tools with the backend `sql`, which use one database called `db`."""
    for tool in tools.values():
        tool["sql"] = {"database": "db", **tool["sql"]}
    return product(
        folder, json.dumps({"databases": {"db": {"url": url, **settings}}, "tools": tools}, ensure_ascii=False)
    )
