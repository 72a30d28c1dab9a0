"""A client that sends requests as bytes, so that no library corrects them."""

import base64
import http.client
import socket
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

import orjson

from gateway.json_types import Json, JsonObject
from tests.messages import MODERN, modern_request

TIMEOUT_SECONDS: Final = 20.0
Fields = Iterable[tuple[str | bytes, str | bytes]]
_NOTHING: Final[JsonObject] = MappingProxyType({})
LEGACY_ACCEPT: Final = "application/json, text/event-stream"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    """Header fields with names in lower case."""
    body: bytes

    @property
    def json(self) -> Json:
        return orjson.loads(self.body)

    @property
    def code(self) -> int | None:
        """The code of the JSON-RPC error, if any."""
        error = self.json.get("error")
        return None if error is None else error["code"]

    @property
    def messages(self) -> list[Json]:
        """All messages of an event stream, or the single message."""
        if not self.headers.get("content-type", "").startswith("text/event-stream"):
            return [self.json]
        lines = self.body.decode().splitlines()
        return [orjson.loads(line[6:]) for line in lines if line.startswith("data: ") and line != "data: "]


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    port: int
    host: str = "127.0.0.1"
    fields: tuple[tuple[str | bytes, str | bytes], ...] = ()
    """Header fields of every request."""

    @contextmanager
    def connection(self) -> Iterator[socket.socket]:
        with socket.create_connection((self.host, self.port), timeout=TIMEOUT_SECONDS) as connection:
            yield connection

    def send(self, data: bytes, *, half_close: bool = False) -> bytes:
        """Send data, and return everything until the daemon closes the connection."""
        with self.connection() as connection:
            received = b""
            try:
                connection.sendall(data)
                if half_close:
                    connection.shutdown(socket.SHUT_WR)
                while chunk := connection.recv(65536):
                    received += chunk
            except TimeoutError:
                raise
            except OSError:
                pass  # the daemon closed the connection before reading everything
            return received

    def encoded(self, method: str, path: str, *, fields: Fields = (), body: bytes = b"") -> bytes:
        """Return a request as bytes. `Host` and `Content-Length` are added if missing."""
        given = [(_bytes(name), _bytes(value)) for name, value in (*self.fields, *fields)]
        names = {name.lower() for name, _ in given}
        if b"host" not in names:
            given.insert(0, (b"Host", b"127.0.0.1:%d" % self.port))
        if b"content-length" not in names and b"transfer-encoding" not in names and (body or method == "POST"):
            given.append((b"Content-Length", b"%d" % len(body)))
        head = b"%b %b HTTP/1.1\r\n" % (method.encode(), path.encode("utf-8", "surrogateescape"))
        return head + b"".join(b"%b: %b\r\n" % field for field in given) + b"\r\n" + body

    def request(self, method: str, path: str, *, fields: Fields = (), body: bytes = b"") -> Answer:
        """Send one request on a new connection."""
        with self.connection() as connection:
            connection.sendall(self.encoded(method, path, fields=[*fields, ("Connection", "close")], body=body))
            response = http.client.HTTPResponse(connection, method=method)
            response.begin()
            return Answer(
                status=response.status,
                headers={name.lower(): value for name, value in response.getheaders()},
                body=response.read(),
            )

    def post(self, message: bytes | Json, *, fields: Fields = (), path: str = "/mcp") -> Answer:
        body = message if isinstance(message, bytes) else orjson.dumps(message)
        return self.request("POST", path, fields=[("Content-Type", "application/json"), *fields], body=body)

    def modern(
        self,
        method: str,
        params: JsonObject = _NOTHING,
        *,
        name: str | None = None,
        fields: Fields = (),
        request_id: Json = 1,
    ) -> Answer:
        """Send a request of 2026-07-28 with its required header fields."""
        mirrored = params.get("name", params.get("uri")) if name is None else name
        needed: list[tuple[str | bytes, str | bytes]] = [("MCP-Protocol-Version", MODERN), ("Mcp-Method", method)]
        if isinstance(mirrored, str):
            needed.append(("Mcp-Name", mirrored_value(mirrored)))
        return self.post(modern_request(method, params, request_id=request_id), fields=[*needed, *fields])

    def call(self, tool: str, arguments: Mapping[str, Json] = _NOTHING) -> Json:
        """Return the result of a tool, or the JSON-RPC error."""
        answer = self.modern("tools/call", {"name": tool, "arguments": dict(arguments)}).messages[-1]
        return answer.get("result", answer.get("error"))

    def text(self, tool: str, arguments: Mapping[str, Json] = _NOTHING) -> str:
        """Return the text of a successful call."""
        result = self.call(tool, arguments)
        assert "content" in result, result
        assert not result.get("isError"), result
        return "".join(block["text"] for block in result["content"])

    def refusal(self, tool: str, arguments: Mapping[str, Json] = _NOTHING) -> str:
        """Return the text of a failed call."""
        result = self.call(tool, arguments)
        assert result.get("isError"), result
        return str(result["content"][0]["text"])

    @contextmanager
    def session(self, revision: str = "2025-11-25", *, fields: Fields = ()) -> Iterator["SessionClient"]:
        """Open a legacy session, and delete it at the end."""
        opened = self.post(initialize(revision), fields=[("Accept", LEGACY_ACCEPT), *fields])
        assert opened.status == 200, opened
        client = SessionClient(self, opened.headers["mcp-session-id"], tuple(fields))
        try:
            client.post({"jsonrpc": "2.0", "method": "notifications/initialized"})
            yield client
        finally:
            self.request("DELETE", "/mcp", fields=client.fields)


@dataclass(frozen=True, slots=True)
class SessionClient:
    client: Client
    id: str
    more: tuple[tuple[str | bytes, str | bytes], ...] = ()

    @property
    def fields(self) -> list[tuple[str | bytes, str | bytes]]:
        return [("Accept", LEGACY_ACCEPT), ("Mcp-Session-Id", self.id), *self.more]

    def post(self, message: bytes | Json, *, fields: Fields = ()) -> Answer:
        return self.client.post(message, fields=[*self.fields, *fields])

    def ask(self, method: str, params: JsonObject = _NOTHING, *, request_id: Json = 1) -> Json:
        message = {"jsonrpc": "2.0", "id": request_id, "method": method, "params": dict(params)}
        return self.post(message).messages[-1]

    def ask_together(self, requests: Iterable[tuple[str, JsonObject]]) -> list[Json]:
        """Send a batch of requests in a session of 2025-03-26."""
        batch = [
            {"jsonrpc": "2.0", "id": number, "method": method, "params": dict(params)}
            for number, (method, params) in enumerate(requests)
        ]
        answers: list[Json] = self.post(orjson.dumps(batch)).json
        return answers


def initialize(revision: str = "2025-11-25", *, request_id: Json = 0) -> JsonObject:
    params = {"protocolVersion": revision, "capabilities": {}, "clientInfo": {"name": "attacker", "version": "0"}}
    return {"jsonrpc": "2.0", "id": request_id, "method": "initialize", "params": params}


def mirrored_value(text: str) -> bytes:
    """Return a header field's value for any text: unchanged, or as base64 (SEP-2243)."""
    if text.isascii() and text.isprintable() and text == text.strip() and text and not text.startswith("=?"):
        return text.encode()
    return b"=?base64?%b?=" % base64.b64encode(text.encode(errors="surrogatepass"))


def _bytes(text: str | bytes) -> bytes:
    return text if isinstance(text, bytes) else text.encode()
