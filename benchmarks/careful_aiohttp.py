"""The same tools as a careful aiohttp application, which validates, counts and logs calls but is not a product.

It shows what a call can cost with aiohttp's public interface: no configuration, limits, reload or audit. It imports
nothing of the gateway.
"""

import argparse
import asyncio
import os
import secrets
import signal
import sys
import time
from bisect import bisect
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import aiohttp
import jsonschema_rs
import orjson
import uvloop
from aiohttp import web

FIXED: Final = 3
"""The number of working tools. The rest fills the list."""

MODERN: Final = "2026-07-28"
LEGACY: Final = frozenset({"2025-03-26", "2025-06-18", "2025-11-25"})
META: Final = "io.modelcontextprotocol/"
SERVER: Final = {"name": "benchmark", "version": "1"}
JSON: Final = {"Content-Type": "application/json"}

Arguments = Mapping[str, Any]


class ProtocolError(Exception):
    """A JSON-RPC error with its HTTP status."""

    def __init__(self, code: int, message: str, *, status: int = 400, request_id: object = None) -> None:
        super().__init__(message)
        self.code = code
        self.status = status
        self.request_id = request_id


@dataclass(frozen=True)
class Tool:
    """A tool: its definition, argument check and function."""

    definition: Mapping[str, Any]
    is_valid: Callable[[Any], bool]
    run: Callable[[Arguments], str] | None = None
    run_later: Callable[[Arguments], Awaitable[str]] | None = None


def tool(name: str, properties: Mapping[str, Any], required: list[str], **runs: Any) -> Tool:
    schema = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
    definition = {"name": name, "description": "Returns the given text.", "inputSchema": schema}
    return Tool(definition, jsonschema_rs.Draft202012Validator(schema).is_valid, **runs)


class CallLog:
    """Counts calls and their durations, and writes one JSON line per call."""

    BOUNDS: Final = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0)
    FLUSH_SECONDS: Final = 0.05

    def __init__(self) -> None:
        self._descriptor: Final = os.open(os.devnull, os.O_WRONLY)
        self._lines: list[bytes] = []
        self._calls: Final = Counter[tuple[str, bool]]()
        self._durations: Final = [0] * (len(self.BOUNDS) + 1)

    def record(self, tool: str, seconds: float, *, is_ok: bool) -> None:
        self._calls[tool, is_ok] += 1
        self._durations[bisect(self.BOUNDS, seconds)] += 1
        if not self._lines:
            asyncio.get_running_loop().call_later(self.FLUSH_SECONDS, self._flush)
        line = {"time": time.time(), "level": "info", "event": "call", "tool": tool, "ok": is_ok}
        self._lines.append(
            orjson.dumps({**line, "milliseconds": round(seconds * 1000, 2)}, option=orjson.OPT_APPEND_NEWLINE)
        )

    def _flush(self) -> None:
        os.write(self._descriptor, b"".join(self._lines))
        self._lines.clear()


class Application:
    """Responds to messages. Sessions are only ids."""

    def __init__(self, *, tools: int, upstream: str) -> None:
        self._upstream = upstream
        self._client: aiohttp.ClientSession
        self._sessions: set[str] = set()
        self._log: Final = CallLog()
        text, item = {"text": {"type": "string"}}, {"item": {"type": "string"}}
        filler = {"path": {"type": "string"}, "depth": {"type": "integer"}, "quiet": {"type": "boolean"}}
        working = (
            tool("echo", text, ["text"], run=lambda arguments: arguments["text"]),
            tool("shell_echo", text, ["text"], run_later=shell_echo),
            tool("http_get", item, ["item"], run_later=self._http_get),
        )
        rest = (
            tool(f"tool_{number}", filler, ["path"], run=lambda arguments: str(arguments["path"]))
            for number in range(tools - FIXED)
        )
        self._tools: Final = {each.definition["name"]: each for each in (*working, *rest)}
        self._list: Final = orjson.dumps([each.definition for each in self._tools.values()])
        self._meta: Final = orjson.dumps({f"{META}serverInfo": SERVER})

    async def open_client(self) -> None:
        timeout = aiohttp.ClientTimeout(total=None)
        connector = aiohttp.TCPConnector(limit=0)
        self._client = aiohttp.ClientSession(connector=connector, timeout=timeout, cookie_jar=aiohttp.DummyCookieJar())

    async def _http_get(self, arguments: Arguments) -> str:
        async with self._client.get(f"{self._upstream}/{arguments['item']}") as response:
            return (await response.read()).decode()

    async def post(self, request: web.Request) -> web.Response:
        headers = request.headers
        if not headers.get("Host", "").startswith("127.0.0.1:"):
            return web.Response(status=403)
        if not headers.get("Content-Type", "").startswith("application/json"):
            return web.Response(status=415)
        if "application/json" not in headers.get("Accept", ""):
            return web.Response(status=406)
        body = await request.read()
        try:
            return await self._answer_http(body, headers)
        except ProtocolError as error:
            return web.Response(status=error.status, body=error_body(error), headers=JSON)

    async def _answer_http(self, body: bytes, headers: Mapping[str, str]) -> web.Response:
        message = read_message(body)
        fields = JSON
        if "id" not in message:
            return web.Response(status=202)
        if (is_modern := check_era(message, headers)) is False and message["method"] == "initialize":
            session = secrets.token_urlsafe(24)
            self._sessions.add(session)
            fields = {**JSON, "Mcp-Session-Id": session}
        elif not is_modern and headers.get("Mcp-Session-Id") not in self._sessions:
            raise ProtocolError(-32600, "Session not found", status=404, request_id=message["id"])
        return web.Response(body=await self.answer(message, is_modern=is_modern), headers=fields)

    async def answer(self, message: Mapping[str, Any], *, is_modern: bool) -> bytes:
        """Return the response to a request as bytes."""
        end = b',"resultType":"complete","_meta":%b}' % self._meta if is_modern else b"}"
        match message["method"]:
            case "tools/call":
                text = await self._call(message)
                result = b'{"content":[{"type":"text","text":%b}],"isError":false%b' % (orjson.dumps(text), end)
            case "tools/list":
                hints = b',"ttlMs":300000,"cacheScope":"public"' if is_modern else b""
                result = b'{"tools":%b%b%b' % (self._list, hints, end)
            case "initialize":
                result = orjson.dumps(
                    {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": SERVER}
                )
            case "server/discover" if is_modern:
                known = {
                    "supportedVersions": [MODERN],
                    "capabilities": {"tools": {}},
                    "ttlMs": 0,
                    "cacheScope": "public",
                }
                result = orjson.dumps(known)[:-1] + end
            case "ping" if not is_modern:
                result = b"{}"
            case method:
                raise ProtocolError(-32601, f"Method not found: {method}", status=404, request_id=message["id"])
        return b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (orjson.dumps(message["id"]), result)

    async def _call(self, message: Mapping[str, Any]) -> str:
        params = message["params"]
        found = self._tools.get(params.get("name"))
        arguments = params.get("arguments") or {}
        if found is None or not found.is_valid(arguments):
            raise ProtocolError(-32602, "Unknown tool or invalid arguments", status=200, request_id=message["id"])
        began, is_ok = time.perf_counter(), False
        try:
            if found.run is not None:
                text = found.run(arguments)
            else:
                assert found.run_later is not None
                async with asyncio.timeout(30):
                    text = await found.run_later(arguments)
            is_ok = True
        finally:
            self._log.record(params["name"], time.perf_counter() - began, is_ok=is_ok)
        return text


def read_message(body: bytes) -> Mapping[str, Any]:
    try:
        message = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise ProtocolError(-32700, "Parse error") from error
    if not isinstance(message, dict) or message.get("jsonrpc") != "2.0" or not isinstance(message.get("method"), str):
        raise ProtocolError(-32600, "Invalid request")
    if not isinstance(message.setdefault("params", {}), dict):
        raise ProtocolError(-32602, "Invalid params", request_id=message.get("id"))
    return message


def check_era(message: Mapping[str, Any], headers: Mapping[str, str]) -> bool:
    """Whether a request is of 2026-07-28, whose headers mirror its body."""
    meta, version = message["params"].get("_meta"), headers.get("MCP-Protocol-Version")
    if not isinstance(meta, dict) or f"{META}protocolVersion" not in meta:
        if version is not None and version not in LEGACY:
            raise ProtocolError(-32600, "Unsupported protocol version", request_id=message["id"])
        return False
    mirrored = (headers.get("Mcp-Method"), headers.get("Mcp-Name"))
    if meta[f"{META}protocolVersion"] != version or mirrored != (message["method"], message["params"].get("name")):
        raise ProtocolError(-32020, "Header mismatch", request_id=message["id"])
    if version != MODERN or not isinstance(meta.get(f"{META}clientCapabilities"), dict):
        raise ProtocolError(-32602, "Invalid metadata", request_id=message["id"])
    return True


def error_body(error: ProtocolError) -> bytes:
    return orjson.dumps(
        {"jsonrpc": "2.0", "id": error.request_id, "error": {"code": error.code, "message": str(error)}}
    )


async def shell_echo(arguments: Arguments) -> str:
    """Run echo(1) with posix_spawn and wait for it on the event loop."""
    loop = asyncio.get_running_loop()
    reader, writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    os.set_blocking(writer, True)
    actions = [(os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0), (os.POSIX_SPAWN_DUP2, writer, 1)]
    try:
        pid = os.posix_spawn(  # noqa: ASYNC221 - takes as long as a vfork
            "/bin/echo", ["echo", arguments["text"]], os.environ, file_actions=actions, setsid=True,
            setsigdef=[signal.SIGPIPE],
        )  # fmt: skip
    finally:
        os.close(writer)
    pidfd, output, parts = os.pidfd_open(pid), bytearray(), 2
    done: asyncio.Future[None] = loop.create_future()

    def finish(descriptor: int) -> None:
        nonlocal parts
        loop.remove_reader(descriptor)
        os.close(descriptor)
        parts -= 1
        if not parts:
            done.set_result(None)

    def read() -> None:
        if chunk := os.read(reader, 65536):
            output.extend(chunk)
        else:
            finish(reader)

    loop.add_reader(reader, read)
    loop.add_reader(pidfd, finish, pidfd)
    await done
    os.waitpid(pid, 0)  # noqa: ASYNC222 - it has ended
    return output.decode()


async def item(_: web.Request) -> web.Response:
    """The response for HTTP tools that are compared with relayed calls."""
    return web.Response(text="hello")


async def serve_http(application: Application, port: int) -> None:
    await application.open_client()
    app = web.Application(client_max_size=4 << 20)
    app.router.add_post("/mcp", application.post)
    app.router.add_get("/{item}", item)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    await asyncio.Event().wait()


async def serve_stdio(application: Application) -> None:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=16 << 20)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        message = read_message(line)
        if "id" not in message:
            continue
        try:
            answer = await application.answer(
                message, is_modern=f"{META}protocolVersion" in message["params"].get("_meta", ())
            )
        except ProtocolError as error:
            answer = error_body(error)
        os.write(1, answer + b"\n")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tools", type=int, required=True)
    parser.add_argument("--upstream", required=True)
    parser.add_argument("--port", type=int, help="the port for Streamable HTTP (default: stdio)")
    options = parser.parse_args()
    application = Application(tools=options.tools, upstream=options.upstream)
    uvloop.run(serve_stdio(application) if options.port is None else serve_http(application, options.port))


if __name__ == "__main__":
    main()
