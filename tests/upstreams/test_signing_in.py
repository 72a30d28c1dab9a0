"""Authentication at upstreams that require tokens."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jwt
import pytest
from aiohttp import web
from yarl import URL

from gateway.access.identity import Subject
from gateway.app.gateway import Gateway
from gateway.config.settings import read_settings
from gateway.json_types import Json, JsonObject
from gateway.net.address_guard import ANYWHERE
from gateway.net.clients import HttpClients
from gateway.net.request import Rejection, Request
from gateway.net.sender import Sender
from gateway.upstreams.client.http_link import HttpChannel
from tests import local_server
from tests.authorization_server import Key
from tests.behaviour.inside import product, served_over_http
from tests.behaviour.test_outbound_auth import API_KEY, CALLERS, Served, own, pem
from tests.token_server import RegisteredClient, TokenServer, token_server
from tests.upstreams.test_failures import until

OPEN = frozenset({"server/discover", "initialize", "notifications/initialized", "tools/list", "GET", "DELETE"})
"""The methods that need no token if lists are open."""


@dataclass(kw_only=True)
class ProtectedServer:
    """An upstream of either era whose tool returns the caller. Its 401 responses name its metadata."""

    server: TokenServer
    names: str = ""
    """The issuer in the metadata, instead of the real one."""
    lists_are_open: bool = False
    refused: str = ""
    """The refused callers."""
    port: int = 0
    seen: list[tuple[str, str | None]] = field(default_factory=list)
    """The method and `Authorization` header of each request."""
    sessions: list[str | None] = field(default_factory=list)
    """The legacy session of each call."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    async def metadata(self, _request: web.Request) -> web.Response:
        issuer = self.names or self.server.issuer.issuer
        return web.json_response({"resource": self.url, "authorization_servers": [issuer]})

    async def respond(self, request: web.Request) -> web.Response:
        body: JsonObject = await request.json() if request.method == "POST" else {"method": request.method, "id": 0}
        method, sent = body["method"], request.headers.get("Authorization")
        self.seen.append((method, sent))
        token = (sent or "").removeprefix("Bearer ")
        is_open = self.lists_are_open and sent is None and method in OPEN
        if token not in self.server.tokens and not is_open:
            named = f'Bearer realm="a, resource_metadata=x", resource_metadata="{self.url}/its-metadata"'
            return web.json_response({}, status=401, headers={"WWW-Authenticate": named})
        who = "nobody" if is_open else jwt.decode(token, options={"verify_signature": False})["sub"]
        if who == self.refused:
            return web.Response(status=403)
        if "id" not in body:
            return web.Response(status=202)
        if method in {"GET", "DELETE"}:
            return web.Response(status=405)
        if method == "tools/call":
            self.sessions.append(request.headers.get("Mcp-Session-Id"))
        begins = {"Mcp-Session-Id": f"session-{len(self.seen)}"} if method == "initialize" else {}
        info = {"name": "protected_server", "version": "1"}
        results: dict[str, Json] = {
            "initialize": {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info},
            "server/discover": {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}},
            "tools/list": {"tools": [{"name": "whoami", "inputSchema": {"type": "object"}}]},
            "tools/call": {"content": [{"type": "text", "text": who}]},
        }
        return web.json_response({"jsonrpc": "2.0", "id": body["id"], "result": results[method]}, headers=begins)


@asynccontextmanager
async def protected_server(server: TokenServer, *, lists_are_open: bool = False) -> AsyncIterator[ProtectedServer]:
    upstream = ProtectedServer(server=server, lists_are_open=lists_are_open)
    app = web.Application()
    app.router.add_get("/mcp/its-metadata", upstream.metadata)
    app.router.add_route("*", "/mcp", upstream.respond)
    async with local_server.listening(app) as upstream.port:
        yield upstream


def entry(upstream: ProtectedServer, auth: dict[str, Any], *, era: str = "modern") -> str:
    keys = f"url: '{upstream.url}', era: {era}, allow_private: true, auth: {json.dumps(auth)}"
    return f"upstreams: {{web: {{{keys}}}}}\n"


@pytest.mark.parametrize("way", ["client_secret", "private_key_jwt", "named_metadata"])
async def test_client_credentials_authenticate_the_gateway(tmp_path: Path, way: str) -> None:
    async with token_server() as server, protected_server(server) as upstream:
        auth = own(server)
        if way == "private_key_jwt":
            key = Key.make("ES256")
            server.clients["gateway"] = RegisteredClient(key=key, methods=["client_assertion_jwt"])
            auth = own(server, client_secret=None, private_key=pem(key), key_id=key.kid)
        elif way == "named_metadata":  # RFC 9728 §5.1: only the 401 response names the metadata
            auth = own(server, issuer=None)
        async with product(tmp_path, entry(upstream, auth)) as client:
            assert await client.text("web_whoami") == "gateway"
            assert await client.text("web_whoami") == "gateway"
        assert len(server.forms) == 1
        assert [method for method, sent in upstream.seen if sent is None] == ["GET"] * (way == "named_metadata")


async def test_rejected_token_is_fetched_again(tmp_path: Path) -> None:
    async with token_server() as server, protected_server(server) as upstream:
        async with product(tmp_path, entry(upstream, own(server))) as client:
            assert await client.text("web_whoami") == "gateway"
            server.tokens.clear()
            assert await client.text("web_whoami") == "gateway"
        assert len(server.forms) == 2


async def until_offered_by(gateway: Gateway) -> None:
    """Wait until the upstream's lists are known, or could not be read without a caller."""

    async def is_known() -> bool:
        state = gateway.status()["upstreams"]["web"]
        return "offers" in state or "reason" in state

    await until(is_known)


@asynccontextmanager
async def exchanging(
    folder: Path, server: TokenServer, upstream: ProtectedServer, *, era: str, **changes: Any
) -> AsyncIterator[Served]:
    """Yield a gateway that exchanges the tokens of its callers."""
    auth = {"token_exchange": own(server, **changes)["client_credentials"]}
    callers = CALLERS.format(issuer=server.issuer.issuer, audience=server.gateway, key=API_KEY)
    config = entry(upstream, auth, era=era) + "\n".join(line[8:] for line in callers.splitlines())
    async with served_over_http(folder, config) as (gateway, http):
        await until_offered_by(gateway)
        yield Served(gateway, http)


async def said(served: Served, credential: str) -> str:
    return str((await served.call(credential, "web_whoami"))["content"][0]["text"])


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_token_exchange_is_per_caller(tmp_path: Path, era: str) -> None:
    async with token_server() as server, protected_server(server, lists_are_open=True) as upstream:
        async with exchanging(tmp_path, server, upstream, era=era) as served:
            tokens = {name: server.caller_token(name) for name in ("alice", "bob")}
            refused = await said(served, API_KEY)
            assert "the request contained none" in refused
            for name in ("alice", "bob", "alice"):
                assert await said(served, tokens[name]) == name
            assert await said(served, API_KEY) == refused  # never with the token of an earlier caller

        assert not any(sent and token in sent for _, sent in upstream.seen for token in (*tokens.values(), API_KEY))
        assert {sent for method, sent in upstream.seen if method == "tools/list"} == {None}


async def test_upstream_cannot_choose_the_token_endpoint(tmp_path: Path) -> None:
    async with (
        token_server() as server,
        token_server() as thief,
        protected_server(server, lists_are_open=True) as upstream,
    ):
        upstream.names = thief.issuer.issuer
        async with exchanging(tmp_path, server, upstream, era="legacy", issuer=None) as served:
            assert await said(served, server.caller_token("alice")) == "alice"
        assert not thief.issuer.asked


async def test_session_uses_the_callers_current_token(tmp_path: Path) -> None:
    async with token_server() as server, protected_server(server, lists_are_open=True) as upstream:
        async with exchanging(tmp_path, server, upstream, era="legacy") as served:
            assert await said(served, server.caller_token("alice")) == "alice"
            server.tokens.clear()
            assert await said(served, server.caller_token("alice")) == "alice"
            assert await said(served, server.caller_token("bob")) == "bob"

        first, second, other = upstream.sessions
        assert first == second != other


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_refused_caller_does_not_affect_others(tmp_path: Path, era: str) -> None:
    async with token_server() as server, protected_server(server, lists_are_open=True) as upstream:
        upstream.refused = "mallory"
        async with exchanging(tmp_path, server, upstream, era=era) as served:
            for _ in range(6):
                refusal = await said(served, server.caller_token("mallory"))
                assert refusal == "web responds with 403 Forbidden, so it requires different credentials"
            assert await said(served, server.caller_token("bob")) == "bob"


async def test_credentials_do_not_follow_cross_origin_redirects(tmp_path: Path) -> None:
    seen: list[str] = []

    async def elsewhere(request: web.Request) -> web.Response:
        seen.append(request.path)
        return web.Response(status=404)

    there = web.Application()
    there.router.add_route("*", "/{path:.*}", elsewhere)
    async with local_server.listening(there) as other:

        async def moved(_request: web.Request) -> web.Response:
            raise web.HTTPTemporaryRedirect(f"http://localhost:{other}/mcp")

        here = web.Application()
        here.router.add_route("*", "/mcp", moved)
        async with local_server.listening(here) as port:
            keys = f"url: 'http://127.0.0.1:{port}/mcp', allow_private: true, auth: {{bearer: a-token-of-ours-0123}}"
            (tmp_path / "config.yaml").write_text(f"upstreams: {{web: {{{keys}}}}}\n", encoding="utf-8")
            settings = {"config": tmp_path / "config.yaml", "log_level": "error", "no_watch": True}
            async with Gateway(read_settings(settings), serves_one_request=True) as gateway:
                reason = gateway.status()["upstreams"]["web"]["reason"]

    assert "redirects to another origin" in reason
    assert seen == []


class RecordingAuthorization:
    summary = "recording"
    is_per_caller = True

    def __init__(self) -> None:
        self.subjects: list[Subject | None] = []

    async def sign(self, request: Request, subject: Subject | None) -> Request:
        self.subjects.append(subject)
        return request

    async def renew(self, rejection: Rejection, subject: Subject | None) -> bool:
        del rejection, subject
        return False


async def test_requests_of_the_gateway_itself_do_not_count_as_calls() -> None:
    ann, authorization = Subject("ann"), RecordingAuthorization()
    async with token_server() as server, protected_server(server) as upstream, HttpClients() as clients:
        sender = Sender(clients=clients, policy=ANYWHERE)
        channel = HttpChannel(URL(upstream.url), headers={}, sender=sender, authorization=authorization)
        channel.subject = ann
        for subject in (ann, None):
            async with channel.exchange("GET", fields={}, subject=subject):
                pass
    own = Subject("ann", is_calling=False)
    assert authorization.subjects == [ann, own]
