"""Fuzzing over HTTP: malformed messages of both eras, disconnects and reloads.

MCP_GATEWAY_FUZZ_SECONDS and MCP_GATEWAY_FUZZ_SEED set the duration and the seed. `-s` shows the counts.
"""

import asyncio
import re
import socket
import struct
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Final

import orjson

from gateway.json_types import Json, JsonObject
from tests.attacks.client import LEGACY_ACCEPT, Client, Fields
from tests.attacks.fuzzing import SEED, Counts, assert_unaffected, fuzz
from tests.attacks.mutations import Mutator
from tests.attacks.target import Target
from tests.attacks.transcripts import (
    GUARDED,
    OPERATOR,
    REVISIONS,
    legacy_messages,
    modern_fields,
    modern_messages,
    opening,
)

PLAN: Final = GUARDED
KEYS: Final[Sequence[Fields]] = (
    *[OPERATOR] * 6,
    (("Authorization", "Bearer the other key"),),
    (),
    (("X-API-Key", "x"),),
)

VISITORS: Final = 40
_STATUS: Final = re.compile(rb"HTTP/1\.1 ([0-9]{3}) ")
_SESSION: Final = re.compile(rb"(?i)mcp-session-id: ([\w-]+)")
_EVENT: Final = re.compile(rb"id: ([0-9a-f]+-[0-9]+)")
_ENDPOINT: Final = re.compile(rb"data: (/messages\?session_id=[\w-]+)")
_PATHS: Final = (
    "/mcp",
    "/mcp/",
    "/sse",
    "/messages",
    "/-/healthy",
    "/-/ready",
    "/-/status",
    "/-/config",
    "/metrics",
    "/",
    "/x",
)
_RESET: Final = struct.pack("ii", 1, 0)


async def test_http_survives_broken_messages(target: Target) -> None:
    counters = Counts()
    visitors: list[Callable[[], Awaitable[None]]] = [
        Visitor(client_with(target, number), counters, Mutator(f"{SEED}-{number}")).visit for number in range(VISITORS)
    ]
    await fuzz(target, counters, visitors)
    assert client_with(target, 0).text("echo", {"text": "still"}) == "still"
    assert_unaffected(target, counters)


def client_with(target: Target, number: int) -> Client:
    """Return a client with a valid key, an invalid key or no key."""
    return Client(port=target.client.port, fields=tuple(KEYS[number % len(KEYS)]))


class Visitor:
    """A misbehaving client."""

    def __init__(self, client: Client, counters: Counts, mutator: Mutator) -> None:
        self._client: Final = client
        self._counters: Final = counters
        self._mutator: Final = mutator
        self._rng: Final = mutator.rng
        self._modern: Final = list(modern_messages())
        self._legacy: Final = list(legacy_messages())

    async def visit(self) -> None:
        await self._rng.choice(
            (self._speak_modern, self._speak_modern, self._use_session, self._stream, self._send_anything)
        )()

    async def _speak_modern(self) -> None:
        """Send requests of 2026-07-28 on one connection."""
        await self._send(*(self._modern_request() for _ in range(self._rng.choice((1, 1, 1, 3)))))

    async def _use_session(self) -> None:
        """Use a session of a legacy revision with its streams, and resume them."""
        message: Json = opening(self._rng.choice(REVISIONS))
        if self._rng.random() < 0.2:
            message = orjson.loads(self._valid(self._mutator.value(message)))
        answer = await self._send(self._post(message, [("Accept", LEGACY_ACCEPT)]), whole=True)
        session = _SESSION.search(answer)
        fields: Fields = [("Accept", LEGACY_ACCEPT), ("Mcp-Session-Id", session[1] if session else b"guessed")]
        async with asyncio.TaskGroup() as group:
            for _ in range(self._rng.randrange(5)):
                group.create_task(self._send(self._post(self._rng.choice(self._legacy), fields)))
            if self._rng.random() < 0.5:
                group.create_task(self._listen(fields))
        if self._rng.random() < 0.7:
            await self._send(self._client.encoded("DELETE", "/mcp", fields=fields))

    async def _listen(self, fields: Fields) -> None:
        heard = await self._send(self._client.encoded("GET", "/mcp", fields=fields))
        event = _EVENT.search(heard)
        last = event[1] if event and self._rng.random() < 0.8 else self._mutator.noise(b"1f-3").replace(b"\n", b"")
        await self._send(self._client.encoded("GET", "/mcp", fields=[*fields, ("Last-Event-ID", last)]))

    async def _stream(self) -> None:
        """Use HTTP+SSE until the stream is closed."""
        with suppress(OSError):
            reader, writer = await asyncio.open_connection(self._client.host, self._client.port)
            try:
                writer.write(self._client.encoded("GET", "/sse", fields=[("Accept", "text/event-stream")]))
                async with asyncio.timeout(2):
                    heard = await reader.readuntil(b"\n\n")
                    while not (endpoint := _ENDPOINT.search(heard)) and b"503" not in heard:
                        heard += await reader.readuntil(b"\n\n")
                path = endpoint[1].decode() if endpoint else "/messages?session_id=guessed"
                messages = [opening("2024-11-05"), *self._rng.choices(self._legacy, k=self._rng.randrange(6))]
                for message in messages:
                    await self._send(self._post(message, [], path=path))
                self._note(heard)
            except (TimeoutError, asyncio.IncompleteReadError):
                self._counters.kinds["stream without endpoint"] += 1
            finally:
                await self._disconnect(writer)

    async def _send_anything(self) -> None:
        """Send any method to any path, or bytes that are hardly HTTP."""
        method = self._rng.choice(
            ("GET", "POST", "PUT", "DELETE", "OPTIONS", "HEAD", "PATCH", "TRACE", "CONNECT", "G\0T")
        )
        request = self._client.encoded(method, self._rng.choice(_PATHS), body=self._rng.choice((b"", b"{}")))
        await self._send(self._mutator.noise(request) if self._rng.random() < 0.7 else request)

    def _modern_request(self) -> bytes:
        message = self._rng.choice(self._modern)
        broken = message if self._rng.random() < 0.3 else orjson.loads(self._valid(self._mutator.value(message)))
        fields = list(modern_fields(broken if _can_be_mirrored(broken) and self._rng.random() < 0.8 else message))
        if self._rng.random() < 0.1:
            fields.pop(self._rng.randrange(len(fields)))
        body = self._mutator.message(broken) if self._rng.random() < 0.2 else orjson.dumps(broken)
        request = self._client.encoded("POST", "/mcp", fields=fields, body=body)
        return self._mutator.noise(request) if self._rng.random() < 0.15 else request

    def _post(self, message: Json, fields: Fields, *, path: str = "/mcp") -> bytes:
        body = self._mutator.message(message) if self._rng.random() < 0.6 else orjson.dumps(message)
        return self._client.encoded("POST", path, fields=[("Content-Type", "application/json"), *fields], body=body)

    def _valid(self, value: Json) -> bytes:
        return orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS)

    async def _send(self, *requests: bytes, whole: bool = False) -> bytes:
        """Send requests on one connection, and yield the responses until the client disconnects."""
        heard = b""
        try:
            reader, writer = await asyncio.open_connection(self._client.host, self._client.port)
        except OSError:
            return heard
        try:
            for piece in self._pieces(b"".join(requests)):
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(self._rng.choice((0, 0, 0.001, 0.01)))
            if not whole and self._rng.random() < 0.15 and writer.can_write_eof():
                writer.write_eof()
            async with asyncio.timeout(1 if whole else self._rng.choice((0, 0.002, 0.01, 0.05, 0.2, 1))):
                while chunk := await reader.read(65536):
                    heard += chunk
                    if whole and b"\r\n\r\n" in heard:
                        break
        except (OSError, TimeoutError):
            pass
        finally:
            await self._disconnect(writer)
        self._note(heard, requests)
        return heard

    def _pieces(self, data: bytes) -> Sequence[bytes]:
        cuts = sorted(self._rng.randrange(len(data) + 1) for _ in range(self._rng.choice((0, 0, 1, 3))))
        return [data[start:end] for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True)]

    async def _disconnect(self, writer: asyncio.StreamWriter) -> None:
        if self._rng.random() < 0.3:
            connection: socket.socket = writer.get_extra_info("socket")
            with suppress(OSError):
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()

    def _note(self, heard: bytes, requests: Sequence[bytes] = ()) -> None:
        statuses = [status.decode() for status in _STATUS.findall(heard)] or ["nothing"]
        self._counters.kinds.update(statuses)
        if "500" in statuses:
            self._counters.failures.append(f"{requests!r} → {heard[:2000]!r}")


def _can_be_mirrored(message: Json) -> bool:
    """Return whether header fields can contain the values of the message."""
    if not isinstance(message, dict) or not isinstance(message.get("params"), dict):
        return False
    method = message.get("method")
    params: JsonObject = message["params"]
    name = params.get("name", params.get("uri"))
    is_short = not isinstance(name, str) or len(name) < 2000
    return is_short and isinstance(method, str) and method.isascii() and method.isprintable()
