"""A proxy closes the connection during a call, and the client reconnects to get the result."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp
import orjson

from tests.e2e.daemon import serving, text_of
from tests.messages import legacy_request, open_session


class Proxy:
    """Forwards bytes in both directions, and closes all connections on request."""

    def __init__(self, host: str, port: int) -> None:
        self._host = host
        self._port = port
        self._open: list[asyncio.StreamWriter] = []
        self.url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstream_reader, upstream_writer = await asyncio.open_connection(self._host, self._port)
        self._open += [writer, upstream_writer]
        await asyncio.gather(
            self._pump(reader, upstream_writer), self._pump(upstream_reader, writer), return_exceptions=True
        )

    def cut(self) -> None:
        for writer in self._open:
            writer.transport.abort()
        self._open.clear()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while chunk := await reader.read(65536):
            writer.write(chunk)
            await writer.drain()
        writer.close()


@asynccontextmanager
async def proxied(url: str) -> AsyncIterator[Proxy]:
    parts = urlsplit(url)
    proxy = Proxy(str(parts.hostname), parts.port or 0)
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    proxy.url = f"http://{host}:{port}{parts.path}"
    try:
        yield proxy
    finally:
        proxy.cut()
        server.close()


async def test_call_interrupted_by_a_proxy_is_resumed(config: Path) -> None:
    timeout = aiohttp.ClientTimeout(total=20)
    async with (
        serving(config) as daemon,
        proxied(await daemon.url()) as proxy,
        aiohttp.ClientSession(timeout=timeout) as client,
    ):
        headers = await open_session(client, proxy.url)
        message = legacy_request("tools/call", {"name": "slow", "arguments": {"seconds": 2}})
        async with client.post(proxy.url, json=message, headers=headers) as response:
            event_id = (await response.content.readline()).decode().removeprefix("id: ").strip()
            proxy.cut()
        async with client.get(proxy.url, headers={**headers, "Last-Event-ID": event_id}) as again:
            lines = (await again.text()).splitlines()
        (answer,) = [orjson.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: ")]
        assert (answer["id"], text_of(answer)) == (1, "slept")
