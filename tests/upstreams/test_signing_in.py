"""Signing in to upstreams that take no request without a token: what they, the token server and callers get to see."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import jwt
import pytest
from aiohttp import web

from gateway.app.gateway import Gateway
from gateway.config.settings import read_settings
from gateway.json_types import Json, JsonObject
from tests import local_server
from tests.authorization_server import Key
from tests.behaviour.inside import product
from tests.behaviour.test_outbound_auth import API_KEY, CALLERS, Served, own, pem
from tests.token_server import RegisteredClient, TokenServer, token_server


@dataclass(kw_only=True)
class Guarded:
    """A modern upstream whose tool says who called; without a token it answers 401, and says where its metadata is."""

    server: TokenServer
    lists_are_open: bool = False
    port: int = 0
    seen: list[tuple[str, str | None]] = field(default_factory=list)
    """The method of each request, and its header field Authorization."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    async def metadata(self, _request: web.Request) -> web.Response:
        return web.json_response({"resource": self.url, "authorization_servers": [self.server.issuer.issuer]})

    async def respond(self, request: web.Request) -> web.Response:
        body: JsonObject = await request.json() if request.method == "POST" else {"method": "GET", "id": 0}
        method, sent = body["method"], request.headers.get("Authorization")
        self.seen.append((method, sent))
        token = (sent or "").removeprefix("Bearer ")
        is_open = self.lists_are_open and sent is None and method in {"server/discover", "tools/list"}
        if token not in self.server.tokens and not is_open:
            named = f'Bearer realm="a, resource_metadata=x", resource_metadata="{self.url}/its-metadata"'
            return web.json_response({}, status=401, headers={"WWW-Authenticate": named})
        who = "nobody" if is_open else jwt.decode(token, options={"verify_signature": False})["sub"]
        results: dict[str, Json] = {
            "server/discover": {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}},
            "tools/list": {"tools": [{"name": "whoami", "inputSchema": {"type": "object"}}]},
            "tools/call": {"content": [{"type": "text", "text": who}]},
        }
        return web.json_response({"jsonrpc": "2.0", "id": body["id"], "result": results[method]})


@asynccontextmanager
async def guarded(server: TokenServer, *, lists_are_open: bool = False) -> AsyncIterator[Guarded]:
    upstream = Guarded(server=server, lists_are_open=lists_are_open)
    app = web.Application()
    app.router.add_get("/mcp/its-metadata", upstream.metadata)
    app.router.add_route("*", "/mcp", upstream.respond)
    async with local_server.listening(app) as upstream.port:
        yield upstream


def entry(upstream: Guarded, auth: dict[str, Any]) -> str:
    return (
        f"upstreams: {{web: {{url: '{upstream.url}', era: modern, allow_private: true, auth: {json.dumps(auth)}}}}}\n"
    )


@pytest.mark.parametrize("way", ["client_secret", "private_key_jwt", "named_metadata"])
async def test_the_gateway_signs_in_as_itself(tmp_path: Path, way: str) -> None:
    async with token_server() as server, guarded(server) as upstream:
        auth = own(server)
        if way == "private_key_jwt":
            key = Key.make("ES256")
            server.clients["gateway"] = RegisteredClient(key=key, methods=["client_assertion_jwt"])
            auth = own(server, client_secret=None, private_key=pem(key), key_id=key.kid)
        elif way == "named_metadata":  # RFC 9728 §5.1: only its 401 tells where that is
            auth = own(server, issuer=None)
        async with product(tmp_path, entry(upstream, auth)) as client:
            assert await client.text("web_whoami") == "gateway"
            assert await client.text("web_whoami") == "gateway"
        assert len(server.forms) == 1
        assert [method for method, sent in upstream.seen if sent is None] == ["GET"] * (way == "named_metadata")


async def test_callers_sign_in_each_by_a_token_of_their_own_and_lists_are_asked_for_without_one(tmp_path: Path) -> None:
    async with token_server() as server, guarded(server, lists_are_open=True) as upstream:
        auth = {"token_exchange": own(server)["client_credentials"]}
        callers = CALLERS.format(issuer=server.issuer.issuer, audience=server.gateway, key=API_KEY)
        config = tmp_path / "config.yaml"
        config.write_text(entry(upstream, auth) + "\n".join(line[8:] for line in callers.splitlines()))
        settings = read_settings({"config": config, "log_level": "error", "no_watch": True, "http": "127.0.0.1:0"})
        async with Gateway(settings, serves_one_request=True) as gateway, aiohttp.ClientSession() as http:
            await gateway.start()
            served = Served(gateway, http)
            tokens = {name: server.caller_token(name) for name in ("alice", "bob")}

            async def said(credential: str) -> str:
                return str((await served.call(credential, "web_whoami"))["content"][0]["text"])

            refused = await said(API_KEY)
            assert "this request came without one" in refused
            assert [await said(tokens[name]) for name in ("alice", "bob", "alice")] == ["alice", "bob", "alice"]
            assert await said(API_KEY) == refused  # and never with the token of who came before

    assert not any(sent and token in sent for _, sent in upstream.seen for token in (*tokens.values(), API_KEY))
    assert {sent for method, sent in upstream.seen if method == "tools/list"} == {None}
