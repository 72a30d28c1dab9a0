"""An OpenID provider with a protected API and MCP server: codes, rotating refresh tokens, revocation."""

import asyncio
import secrets
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlencode

from aiohttp import web

from tests.authorization_server import challenge_of
from tests.local_server import listening

METADATA: Final = "/.well-known/oauth-authorization-server"


@dataclass(kw_only=True)
class Provider:
    """One issuer. The person in `user` approves every authorization request."""

    issuer: str = ""
    user: str = "ann"
    named: str | None = None
    """The authorization server that the services name, if it is another one."""
    lifetime: int | None = 3600
    metadata: dict[str, Any] = field(default_factory=dict)
    response: dict[str, str] = field(default_factory=dict)
    """Parameters that replace those of authorization responses."""
    token_failure: tuple[int, str] | None = None
    """Status and error of token responses."""
    access: dict[str, str] = field(default_factory=dict)
    """Valid access tokens, with their users."""
    refresh: dict[str, str] = field(default_factory=dict)
    issued: list[str] = field(default_factory=list)
    """All tokens, codes and client secrets that were issued."""
    revoked: list[str] = field(default_factory=list)
    asked: list[dict[str, str]] = field(default_factory=list)
    """Authorization requests."""
    moved: str = ""
    """The target of a redirect of the API."""
    free: asyncio.Event = field(default_factory=asyncio.Event)
    """Token requests wait until it is set."""
    grants: Counter[str] = field(default_factory=Counter)
    forms: list[dict[str, str]] = field(default_factory=list)
    """Token requests."""
    codes: dict[str, tuple[str, str]] = field(default_factory=dict)

    def application(self) -> web.Application:
        application = web.Application()
        application.router.add_get(METADATA, self._metadata)
        application.router.add_post("/register", self._register)
        application.router.add_get("/authorize", self._authorize)
        application.router.add_post("/token", self._token)
        application.router.add_post("/revoke", self._revoke)
        application.router.add_get("/api/whoami", self._whoami)
        application.router.add_get("/api/moved", self._moved)
        application.router.add_post("/mcp", self._mcp)
        application.router.add_get("/.well-known/oauth-protected-resource/{path}", self._resource)
        return application

    async def _metadata(self, _request: web.Request) -> web.Response:
        return web.json_response(
            {
                "issuer": self.issuer,
                "authorization_endpoint": f"{self.issuer}/authorize",
                "token_endpoint": f"{self.issuer}/token",
                "registration_endpoint": f"{self.issuer}/register",
                "revocation_endpoint": f"{self.issuer}/revoke",
                "code_challenge_methods_supported": ["S256"],
                "token_endpoint_auth_methods_supported": ["client_secret_basic"],
                "authorization_response_iss_parameter_supported": True,
                **self.metadata,
            }
        )

    def _secret(self, kind: str) -> str:
        self.issued.append(f"{kind}-{secrets.token_urlsafe(24)}")
        return self.issued[-1]

    async def _register(self, request: web.Request) -> web.Response:
        wanted = await request.json()
        return web.json_response({**wanted, "client_id": "registered", "client_secret": self._secret("s")}, status=201)

    async def _authorize(self, request: web.Request) -> web.Response:
        asked = {name: str(value) for name, value in request.query.items()}
        self.asked.append(asked)
        code = self._secret("code")
        self.codes[code] = (self.user, asked["code_challenge"])
        answer = {"code": code, "state": asked["state"], "iss": self.issuer, **self.response}
        raise web.HTTPFound(f"{asked['redirect_uri']}?{urlencode(answer)}")

    async def _token(self, request: web.Request) -> web.Response:
        form = await request.post()
        self.forms.append({name: str(value) for name, value in form.items()})
        self.grants[str(form["grant_type"])] += 1
        await self.free.wait()
        if self.token_failure is not None:
            status, error = self.token_failure
            return web.json_response({"error": error}, status=status)
        if form["grant_type"] == "authorization_code":
            user, challenge = self.codes.pop(str(form["code"]))
            assert challenge_of(str(form["code_verifier"])) == challenge
        else:
            user = self.refresh.pop(str(form["refresh_token"]), "")
            if not user:
                return web.json_response({"error": "invalid_grant"}, status=400)
        access, refresh = self._secret("at"), self._secret("rt")
        self.access[access], self.refresh[refresh] = user, user
        answer = {"access_token": access, "refresh_token": refresh, "token_type": "Bearer", "scope": "read"}
        return web.json_response(answer if self.lifetime is None else {**answer, "expires_in": self.lifetime})

    async def _revoke(self, request: web.Request) -> web.Response:
        token = str((await request.post())["token"])
        self.revoked.append(token)
        self.refresh.pop(token, None)
        return web.Response()

    async def _resource(self, request: web.Request) -> web.Response:
        resource = f"{self.issuer}/{request.match_info['path']}"
        return web.json_response({"resource": resource, "authorization_servers": [self.named or self.issuer]})

    async def _mcp(self, request: web.Request) -> web.Response:
        """An MCP server of revision 2025-11-25 with the tool `whoami`."""
        user = self.access.get(request.headers.get("Authorization", "").removeprefix("Bearer "))
        if user is None:
            return web.Response(status=401, headers={"WWW-Authenticate": 'Bearer scope="read"'})
        message = await request.json()
        results: dict[str, Any] = {
            "initialize": {
                "protocolVersion": "2025-11-25",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "whoami", "version": "1"},
            },
            "tools/list": {"tools": [{"name": "whoami", "inputSchema": {"type": "object"}}]},
            "tools/call": {"content": [{"type": "text", "text": user}]},
            "ping": {},
        }
        if "id" not in message:
            return web.Response(status=202)
        answer: dict[str, Any] = {"jsonrpc": "2.0", "id": message["id"]}
        if message["method"] not in results:
            return web.json_response({**answer, "error": {"code": -32601, "message": "unknown method"}})
        return web.json_response({**answer, "result": results[message["method"]]})

    async def _moved(self, _request: web.Request) -> web.Response:
        raise web.HTTPFound(self.moved)

    async def _whoami(self, request: web.Request) -> web.Response:
        user = self.access.get(request.headers.get("Authorization", "").removeprefix("Bearer "))
        return web.Response(status=401) if user is None else web.Response(text=user)


@asynccontextmanager
async def provider() -> AsyncIterator[Provider]:
    found = Provider()
    found.free.set()
    async with listening(found.application()) as port:
        found.issuer = f"http://127.0.0.1:{port}"
        yield found
