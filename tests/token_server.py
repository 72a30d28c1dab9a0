"""A token endpoint on authlib: client_credentials, private_key_jwt (RFC 7523), token exchange (RFC 8693).

`tests.authorization_server` provides its metadata, keys and signatures. This module also has a service that accepts
only its tokens.
"""

import asyncio
import base64
import hashlib
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import jwt
from aiohttp import web
from authlib.oauth2.rfc6749 import AuthorizationServer as AuthlibServer
from authlib.oauth2.rfc6749 import BaseGrant, InvalidGrantError, InvalidRequestError, OAuth2Request, TokenEndpointMixin
from authlib.oauth2.rfc6749.grants import ClientCredentialsGrant
from authlib.oauth2.rfc6749.requests import BasicOAuth2Payload
from authlib.oauth2.rfc7523 import JWTBearerClientAssertion
from joserfc.jwk import import_key
from joserfc.jwt import decode

from tests.authorization_server import AuthorizationServer, Key, authorization_server
from tests.local_server import listening

TOKEN: Final = "/oauth/token"
SECRET: Final = "s3cret/of+the=gateway"
"""Contains characters that must be encoded in HTTP Basic (RFC 6749 §2.3.1)."""
EXCHANGE: Final = "urn:ietf:params:oauth:grant-type:token-exchange"
JWT_BEARER: Final = "urn:ietf:params:oauth:grant-type:jwt-bearer"
ID_TOKEN: Final = "urn:ietf:params:oauth:token-type:id_token"
ID_JAG: Final = "urn:ietf:params:oauth:token-type:id-jag"
ACCESS_TOKEN: Final = "urn:ietf:params:oauth:token-type:access_token"
_METHODS: Final = ["client_secret_basic", "client_secret_post", "client_assertion_jwt"]


class _Request(OAuth2Request):  # type: ignore[misc]  # authlib has no types
    def __init__(self, uri: str, form: dict[str, str], headers: dict[str, str]) -> None:
        super().__init__("POST", uri.replace("http:", "https:", 1), headers=headers)
        self._fields = form
        self.payload = BasicOAuth2Payload(form)

    @property
    def form(self) -> dict[str, str]:
        return self._fields


@dataclass(kw_only=True)
class RegisteredClient:
    """A registered client, in the shape of authlib's `ClientMixin`."""

    client_id: str = "gateway"
    secret: str = SECRET
    key: Key | None = None
    methods: list[str] = field(default_factory=lambda: list(_METHODS))

    def check_client_secret(self, secret: str) -> bool:
        return secret == self.secret

    def check_endpoint_auth_method(self, method: str, _endpoint: str) -> bool:
        return method in self.methods

    def check_grant_type(self, grant_type: str) -> bool:
        return grant_type in {"client_credentials", EXCHANGE, JWT_BEARER}


class ProofChecker:
    """Checks the DPoP proofs for one server (RFC 9449 §4.3), with PyJWT."""

    def __init__(self, nonce: str) -> None:
        self.nonce = nonce
        self._used: set[str] = set()

    def check(self, request: web.Request, url: str, *, token: str | None = None) -> tuple[str, str]:
        """Return the thumbprint of the key and an error code. One of them is empty."""
        text = request.headers.get("DPoP", "")
        if not text:
            return "", "invalid_dpop_proof"
        head = jwt.get_unverified_header(text)
        claims = jwt.decode(text, jwt.PyJWK(head["jwk"]).key, algorithms=["ES256"])
        ath = None if token is None else _encoded(hashlib.sha256(token.encode()).digest())
        assert (head["typ"], "d" in head["jwk"]) == ("dpop+jwt", False)
        assert (claims["htm"], claims["htu"], claims.get("ath")) == (request.method, url, ath)
        assert claims["jti"] not in self._used
        self._used.add(claims["jti"])
        if claims.get("nonce") != self.nonce:
            return "", "use_dpop_nonce"
        members = {name: head["jwk"][name] for name in ("crv", "kty", "x", "y")}
        return _encoded(hashlib.sha256(json.dumps(members, separators=(",", ":")).encode()).digest()), ""


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


@dataclass(kw_only=True)
class TokenServer:
    """An issuer with a token endpoint."""

    issuer: AuthorizationServer
    clients: dict[str, RegisteredClient] = field(default_factory=lambda: {"gateway": RegisteredClient()})
    lasts: int | str | None = 300
    """`expires_in` of responses."""
    forms: list[dict[str, str]] = field(default_factory=list)
    """The requests to the token endpoint."""
    tokens: list[str] = field(default_factory=list)
    """The issued tokens."""
    answer: web.Response | None = None
    """Replaces all responses."""
    additions: dict[str, Any] = field(default_factory=dict)
    """Overrides of members of responses."""
    free: asyncio.Event = field(default_factory=asyncio.Event)
    """Token requests wait until it is set."""
    gateway: str = "https://tools.example.com/mcp"
    """The audience of callers' tokens."""
    audiences: list[str] = field(default_factory=list)
    """The only accepted values of `aud` in assertions; empty for the issuer and the token endpoint."""
    used: set[str] = field(default_factory=set)
    """The `jti` of assertions."""
    trusted: "TokenServer | None" = None
    """The identity provider whose assertions are accepted. None for this server itself."""
    proofs: ProofChecker | None = None
    """Checks DPoP proofs and binds tokens to their keys. None to ignore proofs."""
    requires_proofs: bool = False
    bound: dict[str, str] = field(default_factory=dict)
    """Thumbprints of keys by token."""
    _thumbprint: str = ""

    @property
    def url(self) -> str:
        return str(self.issuer.metadata["token_endpoint"])

    @property
    def assertion_key(self) -> Key:
        return (self.trusted or self).issuer.keys[-1]

    def caller_token(self, subject: str = "alice", **claims: Any) -> str:
        return self.issuer.token(self.gateway, sub=subject, **claims)

    async def respond(self, request: web.Request) -> web.Response:
        form = {name: str(value) for name, value in (await request.post()).items()}
        self.forms.append(form)
        await self.free.wait()
        self._thumbprint = ""
        if self.proofs is not None and (self.requires_proofs or "DPoP" in request.headers):
            self._thumbprint, error = self.proofs.check(request, self.url)
            if error:
                return web.json_response({"error": error}, status=400, headers={"DPoP-Nonce": self.proofs.nonce})
        if self.answer is not None:
            return web.Response(status=self.answer.status, body=self.answer.body, headers=self.answer.headers)
        response: web.Response = _Endpoint(self).create_token_response(
            _Request(str(request.url), form, dict(request.headers))
        )
        return response

    def issue(self, form: dict[str, str], **claims: Any) -> dict[str, Any]:
        audience = form.get("resource") or form.get("audience") or "anybody"
        token = self.issuer.token(audience, scope=form.get("scope", ""), jti=f"{len(self.tokens)}", **claims)
        self.tokens.append(token)
        if self._thumbprint:
            self.bound[token] = self._thumbprint
        kind = "DPoP" if self._thumbprint else "Bearer"
        answer = {"access_token": token, "token_type": kind, "expires_in": self.lasts, **self.additions}
        return {name: value for name, value in answer.items() if value is not None}


class _Endpoint(AuthlibServer):  # type: ignore[misc]
    def __init__(self, server: TokenServer) -> None:
        super().__init__()
        self.state = server
        self.register_client_auth_method("client_assertion_jwt", _Assertion(server))
        self.register_grant(_ClientCredentials)
        self.register_grant(_TokenExchange)
        self.register_grant(_JwtBearer)

    def query_client(self, client_id: str) -> RegisteredClient | None:
        return self.state.clients.get(client_id)

    def save_token(self, token: dict[str, Any], request: Any) -> None:
        pass

    def send_signal(self, name: str, *args: Any, **kwargs: Any) -> None:
        pass

    def create_oauth2_request(self, request: Any) -> Any:
        return request

    def handle_response(self, status: int, body: Any, headers: Any) -> web.Response:
        return web.json_response(body, status=status, headers={"Cache-Control": "no-store"})


class _Assertion(JWTBearerClientAssertion):  # type: ignore[misc]
    def __init__(self, server: TokenServer) -> None:
        super().__init__()
        self._server = server

    def get_audiences(self) -> list[str]:
        return self._server.audiences or [self._server.url, self._server.issuer.issuer]

    def validate_jti(self, claims: Any, jti: str) -> bool:
        fresh = jti not in self._server.used
        self._server.used.add(jti)
        return fresh

    def process_assertion_claims(self, assertion: str, resolve_key: Any) -> Any:
        """Accept more algorithms than authlib does by default."""
        claims = decode(assertion, resolve_key, algorithms=["RS256", "PS256", "ES256", "ES384"]).claims
        self.verify_claims(claims)
        return claims

    def resolve_client_public_key(self, client: RegisteredClient) -> Any:
        assert client.key is not None
        return import_key(client.key.jwk)


class _ClientCredentials(ClientCredentialsGrant):  # type: ignore[misc]
    TOKEN_ENDPOINT_AUTH_METHODS = _METHODS

    def create_token_response(self) -> tuple[int, Any, Any]:
        answer = self.server.state.issue(self.request.form, sub=self.client.client_id)
        return 200, answer, self.TOKEN_RESPONSE_HEADER


class _TokenExchange(BaseGrant, TokenEndpointMixin):  # type: ignore[misc]
    GRANT_TYPE = EXCHANGE
    TOKEN_ENDPOINT_AUTH_METHODS = _METHODS

    def validate_token_request(self) -> None:
        self.request.client = self.authenticate_token_endpoint_client()
        form, state = self.request.form, self.server.state
        expected = ID_TOKEN if form.get("requested_token_type") == ID_JAG else ACCESS_TOKEN
        if form.get("subject_token_type") != expected:
            raise InvalidRequestError("subject_token_type is missing or unknown")
        for key in state.issuer.keys:
            try:
                self.request.user = jwt.decode(
                    form["subject_token"], key.private.public_key(), algorithms=[key.algorithm], audience=state.gateway
                )["sub"]
            except jwt.InvalidSignatureError:
                continue
            except jwt.PyJWTError as error:
                raise InvalidGrantError(f"the subject token is invalid: {error}") from error
            return
        raise InvalidGrantError("the subject token was issued by a different server")

    def create_token_response(self) -> tuple[int, Any, Any]:
        form, state = self.request.form, self.server.state
        if form.get("requested_token_type") == ID_JAG:
            claims = {"sub": self.request.user, "client_id": "gateway", "resource": form.get("resource")}
            assertion = state.issuer.token(form["audience"], headers={"typ": "oauth-id-jag+jwt"}, **claims)
            answer = {"access_token": assertion, "issued_token_type": ID_JAG, "token_type": "N_A"}
            return 200, {**answer, **state.additions}, self.TOKEN_RESPONSE_HEADER
        answer = self.server.state.issue(
            self.request.form, sub=self.request.user, act={"sub": self.request.client.client_id}
        )
        return 200, {"issued_token_type": ACCESS_TOKEN, **answer}, self.TOKEN_RESPONSE_HEADER


class _JwtBearer(BaseGrant, TokenEndpointMixin):  # type: ignore[misc]
    """RFC 7523 §2.1: assertions of trusted issuers, from confidential clients or from workloads without a client."""

    GRANT_TYPE = JWT_BEARER
    TOKEN_ENDPOINT_AUTH_METHODS = _METHODS

    def validate_token_request(self) -> None:
        form, state = self.request.form, self.server.state
        if "Authorization" in self.request.headers or form.get("client_secret"):
            self.request.client = self.authenticate_token_endpoint_client()
        try:
            key = state.assertion_key
            claims = jwt.decode(
                form["assertion"], key.private.public_key(), algorithms=[key.algorithm], audience=state.issuer.issuer
            )
        except jwt.PyJWTError as error:
            raise InvalidGrantError(f"the assertion is not valid: {error}") from error
        self.request.user = claims["sub"]

    def create_token_response(self) -> tuple[int, Any, Any]:
        answer = self.server.state.issue(self.request.form, sub=self.request.user)
        return 200, answer, self.TOKEN_RESPONSE_HEADER


@dataclass(kw_only=True)
class Service:
    """A service that accepts the tokens of one server, and returns their claims."""

    server: TokenServer
    port: int = 0
    revoked: set[str] = field(default_factory=set)
    """Tokens that are no longer accepted."""
    seen: list[str | None] = field(default_factory=list)
    """The `Authorization` header of each request."""
    headers: list[dict[str, str]] = field(default_factory=list)
    metadata: dict[str, Any] | None = None
    """Protected resource metadata (RFC 9728)."""
    moved: dict[str, str] = field(default_factory=dict)
    """Paths that are redirected, with their targets."""
    proofs: ProofChecker | None = None
    """Checks DPoP proofs. None to accept bearer tokens."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def respond(self, request: web.Request) -> web.Response:
        if request.path.startswith("/.well-known/"):
            return web.json_response(self.metadata) if self.metadata is not None else web.Response(status=404)
        sent = request.headers.get("Authorization")
        self.seen.append(sent)
        self.headers.append(dict(request.headers))
        if request.path in self.moved:
            raise web.HTTPFound(self.moved[request.path])
        scheme, _, token = (sent or "").partition(" ")
        if self.proofs is not None:
            thumbprint, error = self.proofs.check(request, f"{self.url}{request.path}", token=token)
            if scheme != "DPoP" or error or self.server.bound.get(token) != thumbprint:
                challenge = {"WWW-Authenticate": f'DPoP error="{error}"', "DPoP-Nonce": self.proofs.nonce}
                return web.json_response({}, status=401, headers=challenge)
        if request.path == "/echo":
            return web.json_response({"sent": sent})
        if token in self.revoked or token not in self.server.tokens:
            return web.json_response({"error": "invalid_token"}, status=401, headers={"WWW-Authenticate": "Bearer"})
        claims = jwt.decode(token, options={"verify_signature": False})
        return web.json_response({"sub": claims["sub"], "aud": claims["aud"], "scope": claims["scope"]})


@asynccontextmanager
async def token_server() -> AsyncIterator[TokenServer]:
    async with authorization_server() as issuer:
        server = TokenServer(issuer=issuer)
        server.free.set()
        application = web.Application()
        application.router.add_post(TOKEN, server.respond)
        async with listening(application) as port:
            server.issuer.metadata["token_endpoint"] = f"http://127.0.0.1:{port}{TOKEN}"
            yield server


@asynccontextmanager
async def protected_service(server: TokenServer) -> AsyncIterator[Service]:
    service = Service(server=server)
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", service.respond)
    async with listening(application) as service.port:
        yield service


def endpoint_of(server: TokenServer) -> Any:
    """Return authlib's server, so that a test can add endpoints."""
    return _Endpoint(server)


def request_of(url: str, form: dict[str, str], headers: dict[str, str]) -> OAuth2Request:
    return _Request(url, form, headers)
