"""An issuer of opaque tokens: authlib's introspection endpoint (RFC 7662) beside the metadata of an issuer."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

from aiohttp import web
from authlib.oauth2.rfc7662 import IntrospectionEndpoint

from tests.authorization_server import AuthorizationServer, Key
from tests.local_server import listening
from tests.token_server import RegisteredClient, TokenServer, endpoint_of, request_of

SECRET: Final = "s3cret/of+the=gateway"


@dataclass(kw_only=True)
class OpaqueIssuer:
    """One issuer."""

    server: AuthorizationServer
    tokens: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Claims of active tokens."""
    answer: web.Response | None = None
    """Replaces the response."""
    signs: bool = False
    """Whether the response is a JWT (RFC 9701)."""
    signed_claims: dict[str, Any] = field(default_factory=dict)
    """Overrides for claims of the signed response."""
    forms: list[dict[str, str]] = field(default_factory=list)

    @property
    def issuer(self) -> str:
        return self.server.issuer

    async def respond(self, request: web.Request) -> web.Response:
        form = {name: str(value) for name, value in (await request.post()).items()}
        self.forms.append(form)
        if self.answer is not None:
            return web.Response(status=self.answer.status, body=self.answer.body, headers=self.answer.headers)
        server = endpoint_of(TokenServer(issuer=self.server, clients={"gateway": RegisteredClient(secret=SECRET)}))
        server.register_endpoint(_Introspection)
        server.opaque = self.tokens
        response: web.Response = server.create_endpoint_response(
            "introspection", request_of(str(request.url), form, dict(request.headers))
        )
        if not self.signs or response.status != 200:
            return response
        document = response.text or ""
        claims = {
            "iss": self.issuer,
            "aud": "gateway",
            "iat": 1_700_000_000,
            "token_introspection": json.loads(document),
            **self.signed_claims,
        }
        header = {"typ": "token-introspection+jwt", "kid": self.server.keys[-1].kid}
        body = self.server.sign(claims, headers=header)
        return web.Response(text=body, content_type="application/token-introspection+jwt")


class _Introspection(IntrospectionEndpoint):  # type: ignore[misc]  # authlib has no types
    CLIENT_AUTH_METHODS: ClassVar = ["client_secret_basic", "client_secret_post"]

    def query_token(self, token_string: str, _hint: str | None) -> dict[str, Any] | None:
        found: dict[str, Any] | None = self.server.opaque.get(token_string)
        return found

    def check_permission(self, _token: Any, _client: Any, _request: Any) -> bool:
        return True

    def create_introspection_payload(self, token: dict[str, Any] | None) -> dict[str, Any]:
        return {"active": False} if token is None else {"active": True, **token}

    def introspect_token(self, token: dict[str, Any]) -> dict[str, Any]:
        return token


@asynccontextmanager
async def opaque_issuer() -> AsyncIterator[OpaqueIssuer]:
    server = AuthorizationServer(keys=[Key.make("ES256")])
    issuer = OpaqueIssuer(server=server)
    application = server.application()
    application.router.add_post("/introspect", issuer.respond)
    async with listening(application) as port:
        server.issuer = f"http://127.0.0.1:{port}"
        server.metadata = {"introspection_endpoint": f"{server.issuer}/introspect"}
        yield issuer
