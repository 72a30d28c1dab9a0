"""A client of revision 2026-07-28 over Streamable HTTP. Speaks no older revision."""

import math
import os
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from enum import Enum, auto
from typing import Final
from urllib.parse import quote, urlsplit, urlunsplit

import aiohttp
import orjson

from gateway import __version__, exact_json
from gateway.cli.client.client import Listener, RemoteError, every_page
from gateway.config.settings import TOKEN_VARIABLE
from gateway.errors import RpcError
from gateway.json_types import Json, JsonObject
from gateway.language.schemas.header_parameters import header_parameters
from gateway.wire import headers, meta
from gateway.wire.accept import EVENT_STREAM
from gateway.wire.accept import JSON as JSON_TYPE
from gateway.wire.event_parser import EventParser
from gateway.wire.revisions import LATEST_MODERN

_TIMEOUTS: Final = aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=60)
"""A server that works sends comments meanwhile, so that a minute of silence means that it is gone."""


def endpoint(url: str, *, path: str) -> str:
    """The URL of `path` on a server, unless the URL has a path of its own.

    Raises:
        RemoteError: it is not a URL.
    """
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        is_url = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0  # reading it checks it
    except ValueError:
        is_url = False
    if not is_url:
        raise RemoteError(f"{url}: expected a URL such as http://127.0.0.1:8000{path}")
    return urlunsplit(parts._replace(path=parts.path if parts.path.strip("/") else path, fragment=""))


def view_url(url: str, view: str | None) -> str:
    """The URL of a view's endpoint, or of the whole (None).

    Raises:
        RemoteError: it is not a URL.
    """
    parts = urlsplit(endpoint(url, path="/mcp"))
    if view is None:
        return urlunsplit(parts)
    return urlunsplit(parts._replace(path=f"{parts.path.rstrip('/')}/{quote(view, safe='')}"))


@asynccontextmanager
async def remote_client(url: str, *, view: str | None = None) -> AsyncIterator["RemoteClient"]:
    target = view_url(url, view)
    async with aiohttp.ClientSession(timeout=_TIMEOUTS, headers=credentials(), raise_for_status=False) as session:
        yield RemoteClient(session, target)


class AuthRequirement(Enum):
    """The credential that an MCP endpoint asks for."""

    NOTHING = auto()
    KEY = auto()
    LOGIN = auto()
    """A token: it names the authorization servers that it trusts (RFC 9728)."""
    SOMETHING_ELSE = auto()
    """The answer is not one of an MCP endpoint: wrong path, wrong host name, another server."""
    UNKNOWN = auto()
    """No answer."""


async def probe_auth(url: str) -> AuthRequirement:
    """Send a request without a credential to an MCP endpoint, and see what it asks for."""
    async with aiohttp.ClientSession(timeout=_TIMEOUTS) as session:
        try:
            async with session.get(url, headers={"Accept": EVENT_STREAM}) as response:
                challenge = response.headers.get("WWW-Authenticate", "")
        except (aiohttp.ClientError, TimeoutError):
            return AuthRequirement.UNKNOWN
    match response.status:
        case 401:
            # RFC 9728 §5.1: `resource_metadata` leads to the authorization servers.
            return AuthRequirement.LOGIN if "resource_metadata" in challenge else AuthRequirement.KEY
        # Let in: what is refused is a GET that has no session, or for which there is no stream.
        case 200 | 400 | 405 | 406:
            return AuthRequirement.NOTHING
        case _:
            return AuthRequirement.SOMETHING_ELSE


def credentials() -> dict[str, str]:
    """The header field with the key or token of the environment, if there is one."""
    key = os.environ.get(TOKEN_VARIABLE)
    return {"Authorization": f"Bearer {key}"} if key else {}


class RemoteClient:
    """A `Client` of the server at a URL."""

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self._session = session
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
            # The command's own metadata may replace what is above, and nothing below.
            **params.get(meta.META, {}),
            meta.META_PROTOCOL_VERSION: LATEST_MODERN,
            meta.META_CLIENT_INFO: {"name": "mcp-gateway", "version": __version__},
        }
        message = {"jsonrpc": "2.0", "id": self._next_id, "method": method, "params": {**params, meta.META: metadata}}
        fields = await self._headers(method, params)
        try:
            async with self._session.post(self._url, data=orjson.dumps(message), headers=fields) as response:
                return await self._result(response, on_notification)
        except (aiohttp.ClientError, TimeoutError) as error:
            raise unreachable(self._url, error) from error

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
        """The definition of a tool, which says what arguments are mirrored in headers; listed once."""
        if self._tools is None:
            self._tools = {tool["name"]: tool for tool in await every_page(self, "tools/list", "tools")}
        return self._tools.get(name, {})

    async def _result(self, response: aiohttp.ClientResponse, on_notification: Listener | None) -> JsonObject:
        async for message in _messages(response):
            match message:
                case {"result": dict() as result}:
                    return result
                case {"error": {"message": str() as text}} if response.status == 401:
                    hint = f"${TOKEN_VARIABLE} is to hold a key or an access token"
                    raise RemoteError(f"{self._url}: answered 401 {response.reason}: {text}; {hint}")
                case {"error": {"code": int() as code, "message": str() as text, **rest}}:
                    raise RpcError(code, text, rest.get("data"))
                case {"method": str()} if on_notification is not None:
                    await on_notification(message)
        raise RemoteError(
            f"{self._url}: answered HTTP {response.status}, and not in the protocol's revision {LATEST_MODERN}, "
            "the only one that this command speaks to a URL"
        )


async def _messages(response: aiohttp.ClientResponse) -> AsyncIterator[Json]:
    if response.content_type != EVENT_STREAM:
        yield decoded(await response.read())
        return
    # Without a bound: whoever typed the URL wants what is there, as with an answer that is no stream.
    parser = EventParser(max_event=math.inf)
    async for chunk in response.content.iter_any():
        for event in parser.feed(chunk):
            yield decoded(event.data)


def decoded(body: bytes) -> Json:
    """The JSON of a body; None if it is not JSON."""
    try:
        return exact_json.loads(body)
    except orjson.JSONDecodeError:
        return None


def unreachable(url: str, error: Exception) -> RemoteError:
    """The error for a request that got no answer, with what to do about it."""
    reason = _failure_of_reached(error) or f"{_failure_to_reach(error)}; is the server running there?"
    return RemoteError(f"{url}: {reason}")


def _failure_of_reached(error: Exception) -> str | None:
    """The failure of a server that was reached; None if it is not known that one was."""
    match error:
        case aiohttp.ClientConnectorCertificateError(certificate_error=ssl.SSLCertVerificationError() as refusal):
            advice = "use a name that it is for; $SSL_CERT_FILE names the certificate of an authority of your own"
            return f"its certificate is not trusted here: {refusal.verify_message.rstrip('.')}; {advice}"
        case aiohttp.ClientConnectorSSLError():
            return "no TLS is spoken there; is it http://?"
        case aiohttp.ClientPayloadError():
            return "the connection ended before the answer did"
        case aiohttp.ServerDisconnectedError():
            return "the connection ended without an answer; is it https://?"
        case _:
            return None


def _failure_to_reach(error: Exception) -> str:
    match error:
        case TimeoutError():
            return "no answer in time"
        case aiohttp.ClientConnectorDNSError():
            return "no such host"
        case aiohttp.ClientConnectorError() if error.errno:
            return os.strerror(error.errno).lower()
        case _:
            return str(error) or type(error).__name__
