"""A client of 2026-07-28 over Streamable HTTP, as small as the command line needs it. Speaks no older revision."""

import base64
import os
import re
import ssl
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from enum import Enum, auto
from typing import Final
from urllib.parse import urlsplit, urlunsplit

import aiohttp
import orjson

from gateway import __version__
from gateway.cli.peer import Listener, every_page
from gateway.config.settings import PREFIX
from gateway.errors import RpcError
from gateway.json_types import Json, JsonObject

VERSION: Final = "2026-07-28"
TOKEN: Final = PREFIX + "TOKEN"
"""The variable that holds what a server is shown, where it wants to see something. No flag: others see those."""
_META: Final = "io.modelcontextprotocol/"
_NAMED_BY: Final = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
"""The parameter that `Mcp-Name` mirrors (2026-07-28 basic/transports/streamable-http, "Request Metadata")."""
_PLAIN: Final = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?")
_TIMEOUTS: Final = aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=60)
"""A server that works sends comments meanwhile; one minute of silence means that nobody is there."""

_OWN_TIMEOUTS: Final = aiohttp.ClientTimeout(total=20, sock_connect=10)
"""Of the daemon's own pages: who asks how it is has not got a minute, and one that hangs is an answer, too."""


class RemoteError(Exception):
    """Nobody answered at the URL, or not as a server of this revision does."""


def endpoint(url: str, *, path: str) -> str:
    """The URL of `path` on a server, unless the URL has a path of its own.

    Raises:
        RemoteError: it is not a URL.
    """
    parts = urlsplit(url if "://" in url else f"http://{url}")
    if parts.scheme not in {"http", "https"} or not parts.netloc:
        raise RemoteError(f"{url}: expected a URL such as http://127.0.0.1:8000{path}")
    return urlunsplit(parts._replace(path=parts.path if parts.path.strip("/") else path, fragment=""))


def own_path(url: str, path: str) -> str:
    """The URL of one of the daemon's own paths, below the prefix under which a proxy mounts it.

    Raises:
        RemoteError: it is not a URL.
    """
    parts = urlsplit(endpoint(url, path="/"))
    prefix = parts.path.rstrip("/").removesuffix(path).removesuffix("/mcp")
    return urlunsplit(parts._replace(path=prefix + path, query=""))


@asynccontextmanager
async def remote_peer(url: str) -> AsyncIterator["Remote"]:
    target = endpoint(url, path="/mcp")
    async with aiohttp.ClientSession(timeout=_TIMEOUTS, headers=_credentials(), raise_for_status=False) as session:
        yield Remote(session, target)


async def get_json(url: str) -> JsonObject:
    """The JSON object at a URL.

    Raises:
        RemoteError: nobody answers there, or something else does.
    """
    async with aiohttp.ClientSession(timeout=_OWN_TIMEOUTS, headers=_credentials()) as session:
        try:
            async with session.get(url) as response:
                body = await response.read()
        except (aiohttp.ClientError, TimeoutError) as error:
            raise _unreachable(url, error) from error
    answer = _decoded(body)
    if response.status != 200 or not isinstance(answer, dict):
        raise RemoteError(f"{url}: answered {response.status} {response.reason}{_hint(response.status, _said(answer))}")
    return answer


class Wanted(Enum):
    """What a server wants to see of who asks."""

    NOTHING = auto()
    KEY = auto()
    LOGIN = auto()
    """A token: it names the authorization servers that it trusts (RFC 9728)."""
    SOMETHING_ELSE = auto()
    """It does not answer as an MCP endpoint does: another path, another name, another server."""
    UNKNOWN = auto()
    """Nobody answered."""


async def wanted_by(url: str) -> Wanted:
    """Knock at an MCP endpoint without any credential."""
    async with aiohttp.ClientSession(timeout=_TIMEOUTS) as session:
        try:
            async with session.get(url, headers={"Accept": "text/event-stream"}) as response:
                challenge = response.headers.get("WWW-Authenticate", "")
        except (aiohttp.ClientError, TimeoutError):
            return Wanted.UNKNOWN
    match response.status:
        case 401:
            return Wanted.LOGIN if "resource_metadata" in challenge else Wanted.KEY
        case 200 | 400 | 405 | 406:
            return Wanted.NOTHING
        case _:
            return Wanted.SOMETHING_ELSE


def _said(answer: Json) -> str | None:
    """What an answer says of its failure, as one of the daemon's own pages or as JSON-RPC."""
    match answer:
        case {"error": str() as text} | {"error": {"message": str() as text}}:
            return text
        case _:
            return None


def _hint(status: int, said: str | None) -> str:
    if status in {401, 403}:
        return f"; ${TOKEN} is to hold a key with the scope gateway:admin"
    if status == 404 and said is not None:
        return f": {said}; where the file has `listen.admin`, /-/… are at that address alone"
    return ", and not with a status" if said is None else f": {said}"


def _credentials() -> dict[str, str]:
    key = os.environ.get(TOKEN)
    return {"Authorization": f"Bearer {key}"} if key else {}


class Remote:
    """A server behind a URL."""

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
        meta = {
            **({"progressToken": self._next_id} if on_notification else {}),
            **params.get("_meta", {}),
            f"{_META}protocolVersion": VERSION,
            f"{_META}clientInfo": {"name": "mcp-gateway", "version": __version__},
            f"{_META}clientCapabilities": {},
        }
        message = {"jsonrpc": "2.0", "id": self._next_id, "method": method, "params": {**params, "_meta": meta}}
        headers = await self._headers(method, params)
        try:
            async with self._session.post(self._url, data=orjson.dumps(message), headers=headers) as response:
                return await self._result(response, on_notification)
        except (aiohttp.ClientError, TimeoutError) as error:
            raise _unreachable(self._url, error) from error

    async def _headers(self, method: str, params: JsonObject) -> dict[str, str]:
        headers = {
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": VERSION,
            "Mcp-Method": method,
        }
        if (parameter := _NAMED_BY.get(method)) is not None:
            headers["Mcp-Name"] = _field_value(params[parameter])
        if method == "tools/call":
            schema = (await self._tool(params["name"])).get("inputSchema", {})
            for name, value in _mirrored(schema, params.get("arguments", {})):
                headers[f"Mcp-Param-{name}"] = _field_value(value)
        return headers

    async def _tool(self, name: str) -> JsonObject:
        """The definition of a tool: some arguments are mirrored in headers, and it says which."""
        if self._tools is None:
            self._tools = {tool["name"]: tool for tool in await every_page(self, "tools/list", "tools")}
        return self._tools.get(name, {})

    async def _result(self, response: aiohttp.ClientResponse, on_notification: Listener | None) -> JsonObject:
        async for message in _messages(response):
            match message:
                case {"result": dict() as result}:
                    return result
                case {"error": {"message": str() as text}} if response.status == 401:
                    hint = f"${TOKEN} is to hold a key or an access token"
                    raise RemoteError(f"{self._url}: answered 401 {response.reason}: {text}; {hint}")
                case {"error": {"code": int() as code, "message": str() as text, **rest}}:
                    raise RpcError(code, text, rest.get("data"))
                case {"method": str()} if on_notification is not None:
                    await on_notification(message)
        raise RemoteError(
            f"{self._url}: answered HTTP {response.status}, and not in the protocol's revision {VERSION}, "
            "the only one that this command speaks to a URL"
        )


async def _messages(response: aiohttp.ClientResponse) -> AsyncIterator[Json]:
    if response.content_type != "text/event-stream":
        yield _decoded(await response.read())
        return
    data: list[bytes] = []
    async for line in _lines(response.content):
        field, _, value = line.partition(b":")
        if field == b"data":
            data.append(value.removeprefix(b" "))
        elif not line and data:
            yield _decoded(b"\n".join(data))
            data = []


async def _lines(content: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    """Lines of any length; aiohttp's own iteration refuses long ones."""
    begun = bytearray()
    async for chunk in content.iter_any():
        *whole, rest = chunk.split(b"\n")
        for line in whole:
            begun += line
            yield bytes(begun.removesuffix(b"\r"))
            begun.clear()
        begun += rest


def _decoded(body: bytes) -> Json:
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        return None


def _mirrored(schema: JsonObject, arguments: Json) -> Iterator[tuple[str, str]]:
    """Header name and value for each argument that is marked with x-mcp-header (2026-07-28 server/tools)."""
    if not isinstance(arguments, dict):
        return
    for name, property_schema in schema.get("properties", {}).items():
        value = arguments.get(name)
        if value is None or not isinstance(property_schema, dict):
            continue
        if header := property_schema.get("x-mcp-header"):
            yield header, value if isinstance(value, str) else orjson.dumps(value).decode()
        yield from _mirrored(property_schema, value)


def _field_value(text: str) -> str:
    if _PLAIN.fullmatch(text) and not text.startswith("=?base64?"):
        return text
    return f"=?base64?{base64.b64encode(text.encode()).decode()}?="


def _unreachable(url: str, error: Exception) -> RemoteError:
    reason = _broken_off(error) or f"{_not_reached(error)}; is the server running there?"
    return RemoteError(f"{url}: {reason}")


def _broken_off(error: Exception) -> str | None:
    """What went wrong with somebody who is there; None if nobody is known to be."""
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


def _not_reached(error: Exception) -> str:
    match error:
        case TimeoutError():
            return "no answer in time"
        case aiohttp.ClientConnectorDNSError():
            return "no such host"
        case aiohttp.ClientConnectorError() if error.errno:
            return os.strerror(error.errno).lower()
        case _:
            return str(error) or type(error).__name__
