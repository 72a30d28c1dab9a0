"""A daemon that watches a directory, and clients that receive its notifications on all kinds of streams."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from textwrap import dedent
from typing import Final

import aiohttp

from gateway.json_types import Json, JsonObject
from tests.behaviour.cells import HTTP, LATEST, LATEST_LEGACY, SSE, STDIO, Cell
from tests.behaviour.client import NOTHING, Call, Client, initialize_params
from tests.behaviour.daemons import own_urls, serving
from tests.behaviour.wires import HttpWire, SseWire, StdioWire
from tests.e2e.daemon import TIMEOUT_SECONDS, Daemon

CHANGED: Final = "notifications/{}/list_changed"
UPDATED: Final = "notifications/resources/updated"
KINDS: Final = ("tools", "prompts", "resources")

STREAMS: Final[Mapping[str, Cell]] = {
    "stdio": Cell(binding=STDIO, revision=LATEST_LEGACY),
    "get": Cell(binding=HTTP, revision=LATEST_LEGACY),
    "sse": Cell(binding=SSE, revision=LATEST_LEGACY),
    "listen": Cell(binding=HTTP, revision=LATEST),
}
"""The kinds of streams with announcements, with the cell of their client."""

_NUMBERS: Final = count()


def save(path: Path, text: str) -> None:
    """Write a file as most editors do: write a new file, and rename it."""
    other = path.with_name(f".{path.name}.{next(_NUMBERS)}.tmp")
    other.write_text(dedent(text))
    other.replace(path)


@dataclass(frozen=True, kw_only=True)
class Listener:
    """A client with a stream for notifications."""

    client: Client
    listen: Call | None = None

    async def notification(self, method: str) -> dict[str, Json]:
        """Return the parameters of the next notification of this method."""
        if self.listen is None:
            return await self.client.notification(method)
        params = await self.listen.notification(method)
        return {key: value for key, value in params.items() if key != "_meta"}

    async def list_changed(self, kind: str) -> None:
        await self.notification(CHANGED.format(kind))

    def received(self) -> list[str]:
        """Return the methods of the received announcements that `notification` has not returned."""
        came = self.client.received if self.listen is None else self.listen.seen
        return [method for method in (*map(CHANGED.format, KINDS), UPDATED) for _ in came(method)]


@dataclass(kw_only=True)
class Followed:
    """The daemon, its directory and its clients."""

    config: Path
    daemon: Daemon
    url: str
    own_urls: Sequence[str]
    """The URL of each process. There are several only with replicas."""
    http: aiohttp.ClientSession
    stack: AsyncExitStack

    async def client(self, cell: Cell, capabilities: JsonObject = NOTHING) -> Client:
        client = Client(cell, None)
        if cell.binding == STDIO:
            pipe = StdioWire(self.daemon)
            client.wire, pipe.client = pipe, client
            pipe.open()
            self.stack.push_async_callback(pipe.close)
        else:
            client.wire = wire = (HttpWire if cell.is_http else SseWire)(self.url, self.http, client)
            await wire.open()
            self.stack.push_async_callback(wire.close)
        if not cell.is_modern:
            answer = await client.ask("initialize", initialize_params(cell.revision, capabilities))
            client.initialized = answer.result
            await client.notify("notifications/initialized")
        return client

    async def listener(self, stream: str, *uris: str) -> Listener:
        """Open a stream of this kind for notifications of all lists and of these resources."""
        client = await self.client(STREAMS[stream])
        if stream == "listen":
            wanted: dict[str, Json] = {f"{kind}ListChanged": True for kind in KINDS}
            call = await client.start(
                "subscriptions/listen", {"notifications": {**wanted, "resourceSubscriptions": list(uris)}}
            )
            await call.notification("notifications/subscriptions/acknowledged")
            return Listener(client=client, listen=call)
        if isinstance(client.wire, HttpWire):
            await client.wire.listen()
        for uri in uris:
            await client.ask("resources/subscribe", {"uri": uri})
        return Listener(client=client)

    async def listeners(self, *uris: str) -> list[Listener]:
        """Open a stream of each kind."""
        return [await self.listener(stream, *uris) for stream in STREAMS]

    async def get(self, path: str) -> Json:
        """Return the status of the first process."""
        return await self._get(self.own_urls[0] + path)

    async def reload(self) -> tuple[int, Json]:
        """Reload all processes in turn, and return the response of the first one."""
        answers = []
        for url in self.own_urls:
            async with self.http.post(f"{url}/-/reload") as response:
                answers.append((response.status, await response.json()))
        return answers[0]

    async def generation(self) -> int:
        return int((await self.get("/-/status"))["generation"])

    async def until(self, is_so: Callable[[JsonObject], bool]) -> Json:
        """Wait until the status of all processes meets a condition, and return that of the first one."""
        async with asyncio.timeout(TIMEOUT_SECONDS):
            for url in reversed(self.own_urls):
                while not is_so(status := await self._get(f"{url}/-/status")):
                    await asyncio.sleep(0.02)
            return status

    async def _get(self, url: str) -> Json:
        async with self.http.get(url) as response:
            return await response.json()


@asynccontextmanager
async def following(config: Path, *flags: str, watch: bool = True) -> AsyncIterator[Followed]:
    """Run a daemon over HTTP and standard streams. It detects changes only by file system events."""
    flags = ("--stdio", "--http", "127.0.0.1:0", "--poll", "0", *flags)
    async with (
        serving(config, *flags, watch=watch) as daemon,
        aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0), timeout=aiohttp.ClientTimeout(total=120)
        ) as http,
        AsyncExitStack() as stack,
    ):
        urls = await own_urls(daemon)
        yield Followed(config=config, daemon=daemon, url=await daemon.url(), own_urls=urls, http=http, stack=stack)
