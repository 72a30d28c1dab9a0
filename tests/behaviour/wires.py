"""Transports for a client's messages: standard streams, Streamable HTTP, and HTTP+SSE."""

import asyncio
import base64
from collections.abc import Mapping
from contextlib import suppress
from typing import Final
from urllib.parse import urljoin

import aiohttp
import orjson

from gateway.json_types import Json, JsonObject
from tests.behaviour.client import SECONDS, Answer, Call, Client
from tests.e2e.daemon import Daemon

ACCEPT: Final = "application/json, text/event-stream"
_NAMES: Final = {
    "tools/call": "name",
    "prompts/get": "name",
    "resources/read": "uri",
    **dict.fromkeys(("tasks/get", "tasks/update", "tasks/cancel"), "taskId"),
}


class StdioWire:
    """A process, and its current client."""

    def __init__(self, daemon: Daemon) -> None:
        self.daemon: Final = daemon
        self.client: Client | None = None
        self.initialized: JsonObject = {}
        """The result of `initialize`."""
        self._raw: asyncio.Future[dict[str, Json]] | None = None
        self._reading: asyncio.Task[None] | None = None

    def open(self) -> None:
        self._reading = asyncio.create_task(self._read())

    async def close(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait([self._reading])

    async def send(self, message: JsonObject, call: Call | None) -> None:
        self.daemon.send(message)

    async def leave(self, call: Call) -> None:
        raise AssertionError("stdio has only one connection")

    async def raw(self, body: bytes) -> Answer:
        assert self.daemon.process.stdin is not None
        self._raw = asyncio.get_running_loop().create_future()
        self.daemon.process.stdin.write(body + b"\n")
        async with asyncio.timeout(SECONDS):
            return Answer(message=await self._raw)

    async def _read(self) -> None:
        assert self.daemon.process.stdout is not None
        while line := await self.daemon.process.stdout.readline():
            message = orjson.loads(line)
            if self._raw is not None and not self._raw.done() and "method" not in message:
                self._raw.set_result(message)
            elif self.client is not None:
                self.client.take(message, None)


class SseWire:
    """HTTP+SSE: a stream for all received messages, and an endpoint for all sent messages."""

    def __init__(self, url: str, http: aiohttp.ClientSession, client: Client) -> None:
        self._url: Final = url
        self._http: Final = http
        self._client: Final = client
        self._endpoint: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._raw: asyncio.Future[dict[str, Json]] | None = None
        self._reading: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Connect, and wait for the endpoint event."""
        self._reading = asyncio.create_task(self._read())
        async with asyncio.timeout(SECONDS):
            await self._endpoint

    async def close(self) -> None:
        if self._reading is not None:
            await _end(self._reading)

    async def send(self, message: JsonObject, call: Call | None) -> None:
        status, body = await self._post(orjson.dumps(message))
        assert status == 202, body

    async def leave(self, call: Call) -> None:
        raise AssertionError("HTTP+SSE has only one stream")

    async def raw(self, body: bytes) -> Answer:
        self._raw = asyncio.get_running_loop().create_future()
        status, answer = await self._post(body)
        if status != 202:
            return Answer(message=orjson.loads(answer), status=status)
        async with asyncio.timeout(SECONDS):
            return Answer(message=await self._raw)

    async def _post(self, body: bytes) -> tuple[int, bytes]:
        url = urljoin(self._url, await self._endpoint)
        async with self._http.post(url, data=body, headers={"Content-Type": "application/json"}) as response:
            return response.status, await response.read()

    async def _read(self) -> None:
        async with self._http.get(urljoin(self._url, "/sse"), headers={"Accept": "text/event-stream"}) as response:
            assert response.status == 200
            while line := await response.content.readline():
                if not line.startswith(b"data: "):
                    continue
                data = line.removeprefix(b"data: ").strip()
                if self._endpoint.done():
                    self._take(orjson.loads(data))
                else:
                    self._endpoint.set_result(data.decode())

    def _take(self, message: dict[str, Json]) -> None:
        if self._raw is not None and not self._raw.done() and "method" not in message:
            self._raw.set_result(message)
        else:
            self._client.take(message, None)


class HttpWire:
    """Streamable HTTP: a POST for each message, and a GET for messages that belong to no request."""

    def __init__(self, url: str, http: aiohttp.ClientSession, client: Client) -> None:
        self.url: Final = url
        self.http: Final = http
        self.session_id: str | None = None
        self._client: Final = client
        self._tasks: Final[dict[int, asyncio.Task[None]]] = {}
        self._stream: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Do nothing: no connection is open before the first message."""

    async def send(self, message: JsonObject, call: Call | None) -> None:
        posting = asyncio.create_task(self._post(message, call))
        if call is None:
            await posting
        else:
            self._tasks[id(call)] = posting

    async def leave(self, call: Call) -> None:
        await _end(self._tasks.pop(id(call)))

    async def raw(self, body: bytes) -> Answer:
        fields = {**self.fields({"method": "raw"}), "Content-Type": "application/json"}
        async with self.http.post(self.url, data=body, headers=fields) as response:
            return Answer(message=await response.json(), status=response.status)

    async def listen(self) -> None:
        """Open the GET stream, and wait until it is open."""
        opened = asyncio.Event()
        self._stream = asyncio.create_task(self._get(opened))
        async with asyncio.timeout(SECONDS):
            await opened.wait()

    async def hang_up(self) -> None:
        if self._stream is not None:
            await _end(self._stream)

    async def close(self) -> None:
        await self.hang_up()
        for task in self._tasks.values():
            await _end(task)
        if self.session_id is not None:
            credentials = self._client.headers.get("Authorization")
            signed = {} if credentials is None else {"Authorization": credentials}
            async with self.http.delete(self.url, headers={**self._session_fields(), **signed}) as response:
                assert response.status in {204, 404}

    def fields(self, message: JsonObject) -> dict[str, str]:
        """Return the header fields of a message."""
        revision = self._client.cell.revision
        fields: dict[str, str | None] = {"Accept": ACCEPT, "Content-Type": "application/json", **self._session_fields()}
        if self._client.cell.is_modern:
            fields |= {"MCP-Protocol-Version": revision, "Mcp-Method": message["method"]}
            name = message.get("params", {}).get(_NAMES.get(message["method"], ""))
            fields |= {"Mcp-Name": _field_value(name)} if isinstance(name, str) else {}
        fields |= self._client.headers
        return {name: value for name, value in fields.items() if value is not None}

    async def _post(self, message: JsonObject, call: Call | None) -> None:
        async with self.http.post(self.url, data=orjson.dumps(message), headers=self.fields(message)) as response:
            if "Mcp-Session-Id" in response.headers:
                self.session_id = response.headers["Mcp-Session-Id"]
            if response.content_type == "text/event-stream":
                await self._take_events(response, call)
            elif body := await response.read():
                self._client.take(orjson.loads(body), call, response.status)
            elif call is None:
                assert response.status == 202

    async def _get(self, opened: asyncio.Event) -> None:
        fields = {"Accept": "text/event-stream", **self._session_fields()}
        async with self.http.get(self.url, headers=fields) as response:
            assert response.status == 200, await response.text()
            opened.set()
            await self._take_events(response, None)

    async def _take_events(self, response: aiohttp.ClientResponse, call: Call | None) -> None:
        while line := await response.content.readline():
            data = line.removeprefix(b"data:").strip() if line.startswith(b"data:") else b""
            if data:  # an event without data only has an id
                self._client.take(orjson.loads(data), call, response.status)

    def _session_fields(self) -> Mapping[str, str]:
        if self.session_id is None:
            return {}
        version = self._client.initialized.get("protocolVersion")
        return {"Mcp-Session-Id": self.session_id} | ({"MCP-Protocol-Version": version} if version else {})


async def _end(task: asyncio.Task[None]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


def _field_value(text: str) -> str:
    if text.isascii() and text.isprintable() and text == text.strip():
        return text
    return f"=?base64?{base64.b64encode(text.encode()).decode()}?="
