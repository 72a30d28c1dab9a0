"""An authorization server on authlib, with a protected API and MCP server.

It supports codes with PKCE, registration (RFC 7591), rotating refresh tokens, revocation (RFC 7009), client assertions
(RFC 7523) and `iss` in responses (RFC 9207).
"""

import asyncio
import secrets
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

from aiohttp import web
from authlib.oauth2.rfc6749 import AuthorizationServer, JsonRequest, OAuth2Request
from authlib.oauth2.rfc6749.grants import AuthorizationCodeGrant, RefreshTokenGrant
from authlib.oauth2.rfc6749.requests import BasicOAuth2Payload
from authlib.oauth2.rfc7009 import RevocationEndpoint
from authlib.oauth2.rfc7523 import JWTBearerClientAssertion
from authlib.oauth2.rfc7591 import ClientRegistrationEndpoint
from authlib.oauth2.rfc7636 import CodeChallenge
from authlib.oauth2.rfc9207 import IssuerParameter
from joserfc.jwk import import_key
from yarl import URL

from tests.authorization_server import Key
from tests.local_server import listening

METADATA: Final = "/.well-known/oauth-authorization-server"
SECRET: Final = "client-secret-1"
_AUTHENTICATION: Final = ["client_secret_basic", "client_secret_post", "client_assertion_jwt", "none"]


@dataclass(kw_only=True)
class Client:
    """A registered client, in the shape of authlib's `ClientMixin`."""

    client_id: str = "gateway"
    secret: str = SECRET
    method: str = "client_secret_basic"
    redirect_uris: list[str] = field(default_factory=list)
    """Empty to allow all URIs."""
    key: Key | None = None

    def check_client_secret(self, secret: str) -> bool:
        return secret == self.secret

    def check_endpoint_auth_method(self, method: str, _endpoint: str) -> bool:
        return method == ("client_assertion_jwt" if self.key is not None else self.method)

    def check_grant_type(self, grant_type: str) -> bool:
        return grant_type in {"authorization_code", "refresh_token"}

    def check_response_type(self, response_type: str) -> bool:
        return response_type == "code"

    def check_redirect_uri(self, uri: str) -> bool:
        # The port of a loopback redirect URI is ignored (RFC 8252 §7.3).
        allowed = {URL(each).with_port(None) for each in self.redirect_uris}
        return not allowed or URL(uri).with_port(None) in allowed

    def get_allowed_scope(self, scope: str | None) -> str:
        return scope or ""


@dataclass(frozen=True, kw_only=True)
class Grant:
    """The grant behind an authorization code or a refresh token."""

    value: str
    client_id: str
    user: str
    scope: str
    redirect_uri: str = ""
    code_challenge: str = ""
    code_challenge_method: str = ""

    def get_redirect_uri(self) -> str:
        return self.redirect_uri

    def get_scope(self) -> str:
        return self.scope

    def check_client(self, client: Client) -> bool:
        return client.client_id == self.client_id


class _Request(OAuth2Request):  # type: ignore[misc]  # authlib has no types
    def __init__(self, request: web.Request, parameters: dict[str, str]) -> None:
        # authlib refuses plain HTTP, also on loopback.
        super().__init__(request.method, str(request.url).replace("http:", "https:", 1), headers=dict(request.headers))
        self.payload = BasicOAuth2Payload(parameters)

    @property
    def form(self) -> Any:
        return self.payload.data


@dataclass
class _Response:
    """A response, with a location that authlib's extensions replace."""

    status: int
    body: Any
    headers: dict[str, str]

    @property
    def location(self) -> str:
        return self.headers.get("Location", "")

    @location.setter
    def location(self, location: str) -> None:
        self.headers["Location"] = location

    def sent(self) -> web.Response:
        if self.location:
            return web.Response(status=self.status, headers={"Location": self.location})
        return web.json_response(self.body, status=self.status, headers={"Cache-Control": "no-store"})


class _Server(AuthorizationServer):  # type: ignore[misc]
    def __init__(self, provider: "Provider") -> None:
        super().__init__()
        self.provider = provider
        self.register_client_auth_method("client_assertion_jwt", _Assertion(provider))
        self.register_grant(_Code, [CodeChallenge(required=True)])
        self.register_grant(_Refresh)
        self.register_endpoint(_Revocation)
        self.register_endpoint(_Registration)
        self.register_token_generator("default", self.generate)
        self.register_extension(_Issuer)

    def query_client(self, client_id: str) -> Client | None:
        return self.provider.clients.get(client_id)

    def generate(self, *, user: str, scope: str, **_others: Any) -> dict[str, Any]:
        token = {
            "access_token": self.provider.secret("at"),
            "refresh_token": self.provider.secret("rt"),
            "token_type": "Bearer",
            "scope": scope,
        }
        return token if self.provider.lifetime is None else {**token, "expires_in": self.provider.lifetime}

    def save_token(self, token: dict[str, Any], request: Any) -> None:
        access, refresh = token["access_token"], token["refresh_token"]
        self.provider.access[access] = request.user
        self.provider.refresh[refresh] = Grant(
            value=refresh, client_id=request.client.client_id, user=request.user, scope=token["scope"]
        )

    def send_signal(self, name: str, *args: Any, **kwargs: Any) -> None:
        pass

    def create_oauth2_request(self, request: Any) -> Any:
        return request

    def create_json_request(self, request: Any) -> Any:
        return request

    def handle_response(self, status: int, body: Any, headers: Any) -> _Response:
        return _Response(status, body, dict(headers))


class _Assertion(JWTBearerClientAssertion):  # type: ignore[misc]
    def __init__(self, provider: "Provider") -> None:
        super().__init__()
        self._provider = provider
        self._used: set[str] = set()

    def get_audiences(self) -> list[str]:
        return [self._provider.issuer]

    def validate_jti(self, _claims: Any, jti: str) -> bool:
        is_fresh = jti not in self._used
        self._used.add(jti)
        return is_fresh

    def resolve_client_public_key(self, client: Client) -> Any:
        assert client.key is not None
        return import_key(client.key.jwk)


class _Code(AuthorizationCodeGrant):  # type: ignore[misc]
    TOKEN_ENDPOINT_AUTH_METHODS = _AUTHENTICATION

    def generate_authorization_code(self) -> str:
        return str(self.server.provider.secret("code"))

    def save_authorization_code(self, code: str, request: Any) -> None:
        asked = request.payload.data
        self.server.provider.codes[code] = Grant(
            value=code,
            client_id=request.client.client_id,
            user=request.user,
            scope=request.scope,
            redirect_uri=asked["redirect_uri"],
            code_challenge=asked["code_challenge"],
            code_challenge_method=asked["code_challenge_method"],
        )

    def query_authorization_code(self, code: str, client: Client) -> Grant | None:
        found: Grant | None = self.server.provider.codes.get(code)
        return found if found is not None and found.check_client(client) else None

    def delete_authorization_code(self, code: Grant) -> None:
        del self.server.provider.codes[code.value]

    def authenticate_user(self, code: Grant) -> str:
        return code.user


class _Refresh(RefreshTokenGrant):  # type: ignore[misc]
    TOKEN_ENDPOINT_AUTH_METHODS = _AUTHENTICATION
    INCLUDE_NEW_REFRESH_TOKEN = True

    def authenticate_refresh_token(self, token: str) -> Grant | None:
        found: Grant | None = self.server.provider.refresh.get(token)
        return found

    def authenticate_user(self, token: Grant) -> str:
        return token.user

    def revoke_old_credential(self, token: Grant) -> None:
        del self.server.provider.refresh[token.value]


class _Revocation(RevocationEndpoint):  # type: ignore[misc]
    CLIENT_AUTH_METHODS: ClassVar = _AUTHENTICATION

    def query_token(self, token: str, _hint: str | None) -> Grant | None:
        found: Grant | None = self.server.provider.refresh.get(token)
        return found

    def revoke_token(self, token: Grant, _request: Any) -> None:
        self.server.provider.revoked.append(token.value)
        del self.server.provider.refresh[token.value]


class _Registration(ClientRegistrationEndpoint):  # type: ignore[misc]
    def authenticate_token(self, _request: Any) -> bool:
        return True

    def get_server_metadata(self) -> Any:
        return self.server.provider.document()

    def generate_client_secret(self, _request: Any) -> str:
        return str(self.server.provider.secret("s"))

    def save_client(self, info: dict[str, Any], metadata: dict[str, Any], _request: Any) -> Client:
        client = Client(
            client_id=info["client_id"],
            secret=info["client_secret"],
            method=metadata["token_endpoint_auth_method"],
            redirect_uris=metadata["redirect_uris"],
        )
        self.server.provider.clients[client.client_id] = client
        return client


class _Issuer(IssuerParameter):  # type: ignore[misc]
    def __init__(self, server: _Server) -> None:
        self._provider = server.provider
        self(server)

    def get_issuer(self) -> str:
        return str(self._provider.issuer)


@dataclass(kw_only=True)
class Provider:
    """An issuer at which `user` approves every authorization request."""

    issuer: str = ""
    user: str = "ann"
    named: str | None = None
    """The authorization server in the metadata of the services, if it is a different one."""
    lifetime: int | None = 3600
    metadata: dict[str, Any] = field(default_factory=dict)
    response: dict[str, str] = field(default_factory=dict)
    """Parameters that replace those of authorization responses."""
    token_failure: tuple[int, str] | None = None
    """Status and error of token responses."""
    access: dict[str, str] = field(default_factory=dict)
    """Valid access tokens, with their users."""
    refresh: dict[str, Grant] = field(default_factory=dict)
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
    codes: dict[str, Grant] = field(default_factory=dict)
    clients: dict[str, Client] = field(default_factory=lambda: {"gateway": Client()})

    def __post_init__(self) -> None:
        self._server = _Server(self)

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

    def document(self) -> dict[str, Any]:
        return {
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

    async def _metadata(self, _request: web.Request) -> web.Response:
        return web.json_response(self.document())

    def secret(self, kind: str) -> str:
        self.issued.append(f"{kind}-{secrets.token_urlsafe(24)}")
        return self.issued[-1]

    async def _register(self, request: web.Request) -> web.Response:
        wanted = JsonRequest("POST", str(request.url))
        wanted.payload = BasicOAuth2Payload(await request.json())
        response: _Response = self._server.create_endpoint_response("client_registration", wanted)
        return response.sent()

    async def _authorize(self, request: web.Request) -> web.Response:
        asked = {name: str(value) for name, value in request.query.items()}
        self.asked.append(asked)
        wanted = _Request(request, asked)
        grant = self._server.get_consent_grant(wanted, self.user)
        response: _Response = self._server.create_authorization_response(wanted, self.user, grant)
        response.location = str(URL(response.location).update_query(self.response))
        return response.sent()

    async def _token(self, request: web.Request) -> web.Response:
        form = {name: str(value) for name, value in (await request.post()).items()}
        self.forms.append(form)
        self.grants[form["grant_type"]] += 1
        await self.free.wait()
        if self.token_failure is not None:
            status, error = self.token_failure
            return web.json_response({"error": error}, status=status)
        response: _Response = self._server.create_token_response(_Request(request, form))
        return response.sent()

    async def _revoke(self, request: web.Request) -> web.Response:
        form = {name: str(value) for name, value in (await request.post()).items()}
        response: _Response = self._server.create_endpoint_response("revocation", _Request(request, form))
        return response.sent()

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
