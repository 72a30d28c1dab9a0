"""A small authorization server on loopback: metadata, keys, registration, codes with PKCE, and tokens.

It approves every request of a registered client. Tests can rotate its keys, shut it down, and sign invalid tokens.
"""

import base64
import hashlib
import json
import secrets
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlencode

import jwt
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import get_default_algorithms

from tests.local_server import listening

JWKS: Final = "/keys"
METADATA: Final = "/.well-known/oauth-authorization-server"
OPENID: Final = "/.well-known/openid-configuration"
LIFETIME_SECONDS: Final = 300

_MAKERS: Final = {
    "RS256": lambda: rsa.generate_private_key(public_exponent=65537, key_size=2048),
    "PS256": lambda: rsa.generate_private_key(public_exponent=65537, key_size=2048),
    "ES256": lambda: ec.generate_private_key(ec.SECP256R1()),
    "ES384": lambda: ec.generate_private_key(ec.SECP384R1()),
    "EdDSA": ed25519.Ed25519PrivateKey.generate,
}


@dataclass(frozen=True, kw_only=True)
class Key:
    kid: str | None
    algorithm: str
    private: Any

    @classmethod
    def make(cls, algorithm: str = "ES256", *, kid: str | None = "") -> "Key":
        return cls(kid=secrets.token_hex(4) if kid == "" else kid, algorithm=algorithm, private=_MAKERS[algorithm]())

    @property
    def jwk(self) -> dict[str, Any]:
        """The public key."""
        entry: dict[str, Any] = get_default_algorithms()[self.algorithm].to_jwk(self.private.public_key(), as_dict=True)
        entry.pop("key_ops", None)
        return {**entry, "use": "sig", **({} if self.kid is None else {"kid": self.kid})}


@dataclass(kw_only=True)
class _Grant:
    """The grant behind an authorization code."""

    client_id: str
    challenge: str
    resource: str
    scope: str


@dataclass(kw_only=True)
class AuthorizationServer:
    keys: list[Key]
    """The published keys. Tokens are signed with the last one."""
    issuer: str = ""
    subject: str = "alice"
    is_down: bool = False
    """Whether every response is 503."""
    metadata: dict[str, Any] = field(default_factory=dict)
    """Overrides of the metadata."""
    moved: dict[str, str] = field(default_factory=dict)
    """Paths that are redirected, with their targets."""
    missing: set[str] = field(default_factory=set)
    """Paths that return 404."""
    key_set: Any = None
    """Replaces the response with the keys."""
    asked: Counter[str] = field(default_factory=Counter)
    """The number of requests per path."""
    granted: list[str] = field(default_factory=list)
    """The scopes of each token that was issued to a client."""
    _grants: dict[str, _Grant] = field(default_factory=dict)
    _clients: set[str] = field(default_factory=set)

    def token(
        self,
        audience: str | list[str],
        *,
        scope: str = "",
        key: Key | None = None,
        headers: Mapping[str, Any] | None = None,
        lasts: int = LIFETIME_SECONDS,
        **claims: Any,
    ) -> str:
        """Sign an access token. Claims and headers that are None are omitted."""
        key = key or self.keys[-1]
        now = int(time.time())
        body = {
            "iss": self.issuer,
            "sub": self.subject,
            "aud": audience,
            "iat": now,
            "exp": now + lasts,
            "client_id": "test",
            "scope": scope,
            **claims,
        }
        head = {"typ": "at+jwt", "kid": key.kid, **(headers or {})}
        return self.sign({name: value for name, value in body.items() if value is not None}, key=key, headers=head)

    def sign(self, claims: Any, *, key: Key | None = None, headers: Mapping[str, Any] | None = None) -> str:
        """Sign any payload. Bytes are signed unchanged."""
        key = key or self.keys[-1]
        head = {"typ": "JWT", "kid": key.kid} if headers is None else headers
        return jwt.api_jws.encode(
            claims if isinstance(claims, bytes) else json.dumps(claims).encode(),
            key.private,
            algorithm=key.algorithm,
            headers={name: value for name, value in head.items() if value is not None},
        )

    def rotate_keys(self, algorithm: str = "ES256") -> None:
        """Replace all keys by a new one."""
        self.keys[:] = [Key.make(algorithm)]

    def application(self) -> web.Application:
        application = web.Application(middlewares=[self._intercept])
        application.router.add_get(METADATA, self._metadata)
        application.router.add_get(OPENID, self._metadata)
        application.router.add_get(JWKS, self._keys)
        application.router.add_post("/register", self._register)
        application.router.add_get("/authorize", self._authorize)
        application.router.add_post("/token", self._token)
        return application

    @web.middleware
    async def _intercept(self, request: web.Request, handler: Any) -> web.StreamResponse:
        self.asked[request.path] += 1
        if self.is_down:
            raise web.HTTPServiceUnavailable
        if request.path in self.moved:
            raise web.HTTPFound(self.moved[request.path])
        if request.path in self.missing:
            raise web.HTTPNotFound
        response: web.StreamResponse = await handler(request)
        return response

    async def _metadata(self, _request: web.Request) -> web.Response:
        return web.json_response(
            {
                "issuer": self.issuer,
                "authorization_endpoint": f"{self.issuer}/authorize",
                "token_endpoint": f"{self.issuer}/token",
                "registration_endpoint": f"{self.issuer}/register",
                "jwks_uri": f"{self.issuer}{JWKS}",
                "response_types_supported": ["code"],
                "grant_types_supported": ["authorization_code"],
                "code_challenge_methods_supported": ["S256"],
                "token_endpoint_auth_methods_supported": ["none"],
                "authorization_response_iss_parameter_supported": True,
                **self.metadata,
            }
        )

    async def _keys(self, _request: web.Request) -> web.Response:
        return web.json_response({"keys": [key.jwk for key in self.keys]} if self.key_set is None else self.key_set)

    async def _register(self, request: web.Request) -> web.Response:
        wanted = await request.json()
        client_id = secrets.token_urlsafe(8)
        self._clients.add(client_id)
        return web.json_response({**wanted, "client_id": client_id, "token_endpoint_auth_method": "none"}, status=201)

    async def _authorize(self, request: web.Request) -> web.Response:
        asked = request.query
        assert asked["client_id"] in self._clients
        assert asked["code_challenge_method"] == "S256"
        code = secrets.token_urlsafe(16)
        self._grants[code] = _Grant(
            client_id=asked["client_id"],
            challenge=asked["code_challenge"],
            resource=asked["resource"],
            scope=asked.get("scope", ""),
        )
        answer = urlencode({"code": code, "state": asked["state"], "iss": self.issuer})
        raise web.HTTPFound(f"{asked['redirect_uri']}?{answer}")

    async def _token(self, request: web.Request) -> web.Response:
        form = await request.post()
        grant = self._grants.pop(str(form["code"]))
        assert challenge_of(str(form["code_verifier"])) == grant.challenge
        assert form["client_id"] == grant.client_id
        assert form["resource"] == grant.resource
        self.granted.append(grant.scope)
        return web.json_response(
            {
                "access_token": self.token(grant.resource, scope=grant.scope),
                "token_type": "Bearer",
                "expires_in": LIFETIME_SECONDS,
                "scope": grant.scope,
            }
        )


def challenge_of(verifier: str) -> str:
    """Return the code challenge (RFC 7636 §4.2)."""
    return base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).decode().rstrip("=")


@asynccontextmanager
async def authorization_server(algorithm: str = "ES256", *, port: int = 0) -> AsyncIterator[AuthorizationServer]:
    server = AuthorizationServer(keys=[Key.make(algorithm)])
    async with listening(server.application(), port=port) as actual_port:
        server.issuer = f"http://127.0.0.1:{actual_port}"
        yield server
