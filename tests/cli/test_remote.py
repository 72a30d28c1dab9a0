"""The client of a server at a URL: headers, responses, and errors for other servers."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from gateway.cli.client.admin_api import ask_daemon
from gateway.cli.client.remote import endpoint, remote_client
from gateway.errors import ExecutionError, RpcError
from gateway.json_types import JsonObject
from tests.certificates import Authority
from tests.cli.typed import Run

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Start = Callable[..., Awaitable[str]]

TOOL = {
    "name": "x",
    "inputSchema": {
        "type": "object",
        "properties": {
            "region": {"type": "string", "x-mcp-header": "Region"},
            "deep": {"type": "object", "properties": {"n": {"type": "integer", "x-mcp-header": "N"}}},
        },
    },
}


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    servers: list[TestServer] = []

    async def start(handler: Handler, context: ssl.SSLContext | None = None) -> str:
        application = web.Application()
        application.router.add_route("*", "/{path:.*}", handler)
        server = TestServer(application)
        await server.start_server(ssl=context)
        servers.append(server)
        return str(server.make_url("/mcp"))

    yield start
    for server in servers:
        await server.close()


def answer(request_id: Any, result: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": request_id, "result": result}


async def test_unauthorized_call_names_the_variable_to_set(start: Start) -> None:
    async def handle(request: web.Request) -> web.Response:
        assert "Authorization" not in request.headers
        return web.json_response({"jsonrpc": "2.0", "error": {"code": -32600, "message": "Who are you?"}}, status=401)

    async with remote_client(await start(handle)) as peer:
        with pytest.raises(ExecutionError) as caught:
            await peer.request("tools/list")
    assert "401 Unauthorized: Who are you? (set $MCP_GATEWAY_TOKEN to" in str(caught.value)
    assert "\n" not in str(caught.value)


async def test_request_has_envelope_and_headers(start: Start) -> None:
    seen: list[tuple[Any, dict[str, Any]]] = []

    async def handle(request: web.Request) -> web.Response:
        body = await request.json()
        seen.append((request.headers.copy(), body))
        result = {"tools": [TOOL]} if body["method"] == "tools/list" else {"content": []}
        return web.json_response(answer(body["id"], result))

    async with remote_client(await start(handle)) as peer:
        await peer.request("tools/call", {"name": "x", "arguments": {"region": "zürich", "deep": {"n": 5}}})
    [_, (headers, body)] = seen
    assert headers["MCP-Protocol-Version"] == "2026-07-28"
    assert headers["Mcp-Method"] == "tools/call"
    assert headers["Mcp-Name"] == "x"
    assert headers["Mcp-Param-Region"] == "=?base64?esO8cmljaA==?="
    assert headers["Mcp-Param-N"] == "5"
    assert body["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"] == "2026-07-28"
    assert body["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"] == {}


async def test_notifications_arrive_before_the_response(start: Start) -> None:
    async def handle(request: web.Request) -> web.StreamResponse:
        body = await request.json()
        progress = {"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progress": 1}}
        long = answer(body["id"], {"text": "x" * 300_000})
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for message in (progress, long):
            await response.write(f": comment\r\nevent: message\r\ndata: {json.dumps(message)}\r\n\r\n".encode())
        return response

    heard: list[JsonObject] = []

    async def listen(notification: JsonObject) -> None:
        heard.append(notification)

    async with remote_client(await start(handle)) as peer:
        result = await peer.request("resources/read", {"uri": "a:b"}, on_notification=listen)
    assert len(result["text"]) == 300_000
    assert [notification["params"] for notification in heard] == [{"progress": 1}]


async def test_json_rpc_error_keeps_code_and_message(start: Start) -> None:
    async def handle(request: web.Request) -> web.Response:
        body = await request.json()
        error = {"code": -32602, "message": "Unknown prompt", "data": {"name": "x"}}
        return web.json_response({"jsonrpc": "2.0", "id": body["id"], "error": error}, status=400)

    async with remote_client(await start(handle)) as peer:
        with pytest.raises(RpcError, match="Unknown prompt") as caught:
            await peer.request("prompts/get", {"name": "x"})
    assert (caught.value.code, caught.value.data) == (-32602, {"name": "x"})


@pytest.mark.parametrize("body", ["", "Not Found", "[]", '{"jsonrpc": "2.0"}'])
async def test_response_without_mcp_message_is_an_error(start: Start, body: str) -> None:
    async def handle(_request: web.Request) -> web.Response:
        return web.Response(text=body, status=404)

    async with remote_client(await start(handle)) as peer:
        with pytest.raises(ExecutionError, match=r"returned HTTP 404 without an MCP 2026-07-28 message"):
            await peer.request("tools/list")


@pytest.mark.parametrize("status", [200, 404])
async def test_other_server_is_reported(start: Start, status: int) -> None:
    async def handle(_: web.Request) -> web.Response:
        return web.Response(text="<h1>It works!</h1>", content_type="text/html", status=status)

    with pytest.raises(ExecutionError, match="This is not an mcp-gateway"):
        await ask_daemon(await start(handle), "/-/status")


async def test_refused_connection_is_reported(unused_tcp_port: int) -> None:
    url = f"http://127.0.0.1:{unused_tcp_port}"
    async with remote_client(url) as peer:
        with pytest.raises(ExecutionError, match=r"connection refused\. Is the server running"):
            await peer.request("tools/list")
    with pytest.raises(ExecutionError, match="Is the server running"):
        await ask_daemon(url, "/-/status")


async def refusal_of(url: str) -> str:
    with pytest.raises(ExecutionError) as caught:
        await ask_daemon(url, "/-/status")
    return str(caught.value)


async def test_wrong_scheme_and_untrusted_certificate_are_reported(start: Start, tmp_path: Path) -> None:
    async def handle(_request: web.Request) -> web.Response:
        return web.json_response({})

    Authority().issue(tmp_path / "cert.pem", tmp_path / "key.pem")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(tmp_path / "cert.pem", tmp_path / "key.pem")
    plain, private = await start(handle), await start(handle, context)
    assert await ask_daemon(plain, "/-/status") == {}
    assert "wrong version number. Is the server running? Does" in await refusal_of(plain.replace("http:", "https:"))
    assert "is not trusted: unable to get local issuer" in await refusal_of(private)
    assert "the right scheme, http:// or https://?" in await refusal_of(private.replace("https:", "http:"))


async def test_connection_closed_during_the_response_is_reported(start: Start) -> None:
    async def handle(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Length": "100"})
        await response.prepare(request)
        await response.write(b"{")
        assert request.transport is not None
        request.transport.abort()
        return response

    async with remote_client(await start(handle)) as peer:
        with pytest.raises(ExecutionError, match="is incomplete"):
            await peer.request("tools/list")


async def test_stream_without_response_is_an_error(start: Start) -> None:
    async def handle(_request: web.Request) -> web.Response:
        return web.Response(text="data: {}\n\n", content_type="text/event-stream")

    async with remote_client(await start(handle)) as peer:
        with pytest.raises(ExecutionError):
            await peer.request("tools/list")


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://h:1", "http://h:1/mcp"),
        ("http://h:1/", "http://h:1/mcp"),
        ("h:1", "http://h:1/mcp"),
        ("https://h/tools/mcp", "https://h/tools/mcp"),
    ],
)
def test_url_without_path_gets_the_endpoint_path(url: str, expected: str) -> None:
    assert endpoint(url, path="/mcp") == expected


@pytest.mark.parametrize("url", ["ftp://h/", "http://", "http:///mcp", ""])
def test_invalid_url_is_rejected(url: str) -> None:
    with pytest.raises(ExecutionError, match="expected a URL"):
        endpoint(url, path="/mcp")


async def test_failed_cancellation_does_not_hide_an_unanswered_question(start: Start, run: Run) -> None:
    async def handle(request: web.Request) -> web.Response:
        body = await request.json()
        asked = {"sure": {"method": "elicitation/create", "params": {"message": "Sure?"}}}
        extensions: dict[str, Any] = {"extensions": {"io.modelcontextprotocol/tasks": {}}}
        match body["method"]:
            case "tools/list":
                said: dict[str, Any] = {"result": {"tools": [{"name": "x", "inputSchema": {"type": "object"}}]}}
            case "tools/call" if not body["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"]:
                said = {"error": {"code": -32021, "message": "No", "data": {"requiredCapabilities": extensions}}}
            case "tools/call":
                said = {"result": {"resultType": "task", "taskId": "1"}}
            case "tasks/get":
                said = {"result": {"taskId": "1", "status": "input_required", "inputRequests": asked}}
            case _:
                said = {"error": {"code": -32603, "message": "It cannot be cancelled"}}
        return web.json_response({"jsonrpc": "2.0", "id": body["id"], **said})

    url = await start(handle)
    finished = await asyncio.to_thread(run, "call", "--url", url, "x")
    assert finished.code == 1
    assert "The call asks for a confirmation. Pass --yes" in finished.hints


@pytest.mark.parametrize(("key", "expected"), [(None, "Basic dTpw"), ("k", "Bearer k")])
async def test_redirects_do_not_forward_credentials(
    start: Start, monkeypatch: pytest.MonkeyPatch, key: str | None, expected: str
) -> None:
    received: list[str | None] = []

    async def elsewhere(request: web.Request) -> web.Response:
        received.append(request.headers.get("Authorization"))
        return web.json_response({})

    async def handle(request: web.Request) -> web.Response:
        received.append(request.headers.get("Authorization"))
        return web.Response(status=307, headers={"Location": target})

    if key is not None:
        monkeypatch.setenv("MCP_GATEWAY_TOKEN", key)
    target = await start(elsewhere)
    assert await ask_daemon((await start(handle)).replace("//", "//u:p@"), "/-/status") == {}
    assert received == [expected, None]
