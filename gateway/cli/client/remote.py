"""The interface `GatewayClient`, and its implementation for MCP 2026-07-28 over Streamable HTTP."""

import math
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Final, Protocol
from urllib.parse import quote, urlsplit, urlunsplit

import aiohttp
import orjson

from gateway import __version__, exact_json
from gateway.config.settings import TOKEN_VARIABLE
from gateway.errors import ExecutionError, RpcError
from gateway.json_types import Json, JsonObject
from gateway.language.schemas.keywords import header_parameters
from gateway.net.address_guard import ANYWHERE
from gateway.net.clients import Answer, HttpClients
from gateway.net.request import Request, bound, parse_url
from gateway.net.sender import Sender
from gateway.wire import headers, meta
from gateway.wire.accept import EVENT_STREAM
from gateway.wire.accept import JSON as JSON_TYPE
from gateway.wire.event_parser import EventParser
from gateway.wire.revisions import LATEST_MODERN

Listener = Callable[[JsonObject], Awaitable[None]]


class GatewayClient(Protocol):
    async def request(
        self, method: str, params: JsonObject | None = None, *, on_notification: Listener | None = None
    ) -> JsonObject:
        """Send an MCP 2026-07-28 request and return the result. Raise RpcError if the response is an error.

        With `on_notification`, also request progress notifications. The function receives each notification.
        """


async def every_page(client: GatewayClient, method: str, key: str) -> list[Json]:
    items: list[Json] = []
    params: JsonObject = {}
    while True:
        page = await client.request(method, params)
        items += page[key]
        if page.get("nextCursor") is None:
            return items
        params = {"cursor": page["nextCursor"]}


_MAX_BYTES: Final = 2**30
_TIMEOUTS: Final = aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=60)
"""Limits each read to 60 seconds. Servers send comments on open streams, so silence means a lost connection."""


def endpoint(url: str, *, path: str) -> str:
    """Return the normalised URL. `path` is used if the URL has no path. Raise ExecutionError if the URL is invalid."""
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        is_url = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0  # `port` validates
    except ValueError:
        is_url = False
    if not is_url:
        raise ExecutionError(f"{url}: expected a URL such as http://127.0.0.1:8000{path}")
    return urlunsplit(parts._replace(path=parts.path if parts.path.strip("/") else path, fragment=""))


def view_url(url: str, view: str | None) -> str:
    """Return the URL of the MCP endpoint, or the URL of the view if `view` is set."""
    parts = urlsplit(endpoint(url, path="/mcp"))
    if view is None:
        return urlunsplit(parts)
    return urlunsplit(parts._replace(path=f"{parts.path.rstrip('/')}/{quote(view, safe='')}"))


@asynccontextmanager
async def remote_client(url: str, *, view: str | None = None) -> AsyncIterator["RemoteClient"]:
    target = view_url(url, view)
    async with open_sender() as sender:
        yield RemoteClient(sender, target)


@asynccontextmanager
async def open_sender() -> AsyncIterator[Sender]:
    """Open an HTTP client that can also reach private addresses, because the user chooses the URL."""
    async with HttpClients() as clients:
        yield Sender(clients=clients, policy=ANYWHERE, max_redirects=3, max_bytes=_MAX_BYTES, timeout=_TIMEOUTS)


def request_to(url: str, method: str, fields: Mapping[str, str], body: bytes | None = None) -> Request:
    """Build a request that authenticates with the token in the environment, or else with the credentials in the URL.

    Raise ValueError if the URL is not valid.
    """
    target, key = parse_url(url), os.environ.get(TOKEN_VARIABLE)
    if key:
        fields = {"Authorization": f"Bearer {key}", **fields}
    elif target.user is not None:
        fields = {"Authorization": aiohttp.encode_basic_auth(target.user, target.password or ""), **fields}
    return Request(method=method, url=target, headers=bound(fields), body=body)


class RemoteClient:
    def __init__(self, sender: Sender, url: str) -> None:
        self._sender = sender
        self._url = url
        self._next_id = 0
        self._tools: Mapping[str, JsonObject] | None = None

    async def request(
        self, method: str, params: JsonObject | None = None, *, on_notification: Listener | None = None
    ) -> JsonObject:
        self._next_id += 1
        params = params or {}
        metadata = {
            **({meta.META_PROGRESS_TOKEN: self._next_id} if on_notification else {}),
            meta.META_CLIENT_CAPABILITIES: {},
            **params.get(meta.META, {}),
            meta.META_PROTOCOL_VERSION: LATEST_MODERN,
            meta.META_CLIENT_INFO: {"name": "mcp-gateway", "version": __version__},
        }
        message = {"jsonrpc": "2.0", "id": self._next_id, "method": method, "params": {**params, meta.META: metadata}}
        fields = await self._headers(method, params)
        try:
            request = request_to(self._url, "POST", fields, orjson.dumps(message))
            async with self._sender.exchange(request) as answer:
                response = await _response(answer, on_notification)
        except (ExecutionError, ValueError) as error:
            raise unreachable(self._url, error) from error
        match response:
            case {"result": dict() as result}:
                return result
            case {"error": {"message": str() as text}} if answer.status == 401:
                hint = f"set ${TOKEN_VARIABLE} to a key or an access token"
                raise ExecutionError(f"{self._url}: the server returned 401 {answer.reason}: {text} ({hint})")
            case {"error": {"code": int() as code, "message": str() as text, **rest}}:
                raise RpcError(code, text, rest.get("data"))
        raise ExecutionError(
            f"{self._url}: the server returned HTTP {answer.status} without an MCP {LATEST_MODERN} message, "
            "the only revision that this command supports"
        )

    async def _headers(self, method: str, params: JsonObject) -> dict[str, str]:
        fields = {
            "Content-Type": JSON_TYPE,
            "Accept": f"{JSON_TYPE}, {EVENT_STREAM}",
            meta.HEADER_PROTOCOL_VERSION: LATEST_MODERN,
            **headers.request_fields(method, params),
        }
        if method == "tools/call":
            mirrored, _ = header_parameters((await self._tool(params["name"])).get("inputSchema", {}))
            fields |= headers.parameter_fields(mirrored, params.get("arguments", {}))
        return fields

    async def _tool(self, name: str) -> JsonObject:
        """Return the definition of a tool. Its input schema defines which arguments are also sent as HTTP headers."""
        if self._tools is None:
            self._tools = {tool["name"]: tool for tool in await every_page(self, "tools/list", "tools")}
        return self._tools.get(name, {})


async def _response(answer: Answer, on_notification: Listener | None) -> Json:
    async for message in _messages(answer):
        match message:
            case {"result": dict()} | {"error": {"message": str()}}:
                return message
            case {"method": str()} if on_notification is not None:
                await on_notification(message)
    return None


async def _messages(answer: Answer) -> AsyncIterator[Json]:
    if answer.media_type != EVENT_STREAM:
        yield decoded(await answer.read(max_bytes=_MAX_BYTES))
        return
    parser = EventParser(max_event=math.inf)
    async for chunk in answer.content.iter_any():
        for event in parser.feed(chunk):
            yield decoded(event.data)


def decoded(body: bytes) -> Json:
    """Parse a body as JSON, or return None if the body is not valid JSON."""
    try:
        return exact_json.loads(body)
    except orjson.JSONDecodeError:
        return None


def unreachable(url: str, error: Exception) -> ExecutionError:
    """Return the error for a request that received no response, with a hint about the likely cause."""
    cause, hint = error.__cause__ or error, ""
    if isinstance(cause, aiohttp.ClientConnectorCertificateError):
        hint = ". Use a host name of the certificate, or set $SSL_CERT_FILE to the certificate of your own authority"
    elif isinstance(cause, aiohttp.ClientConnectionError | TimeoutError):
        hint = ". Is the server running? Does the URL start with the right scheme, http:// or https://?"
    return ExecutionError(f"{url}: {error}{hint}")
