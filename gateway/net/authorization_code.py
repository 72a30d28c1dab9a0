"""Runs the authorization code flow for one service (RFC 6749 §4.1, MCP basic/authorization). Stores nothing.

Threats:

- An authorization code is stolen or injected: each request uses PKCE with S256.
- Two authorization servers are mixed up: `iss` must be the expected issuer (RFC 9207).
"""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import urlencode, urlsplit, urlunsplit

import msgspec
import orjson
import structlog
from msgspec.structs import replace

from gateway.access.issuer import NotFoundError, is_trustworthy
from gateway.access.jose import encoded
from gateway.config.models.outbound_auth import AuthorizationCode
from gateway.control_characters import strip_control_characters
from gateway.errors import ExecutionError
from gateway.json_types import Json
from gateway.net.server_metadata import ServerMetadata, discover, discover_of_service, post
from gateway.net.token_client import ALGORITHM, OAuthClient, TokenEndpoint, content_of, new_key, read_token

log: Final = structlog.get_logger(__name__)

PAGES: Final = "/-/sign-in"
CLIENT_DOCUMENTS: Final = "/.well-known/oauth-client"
_OFFLINE: Final = "offline_access"
_GOOGLE: Final = "https://accounts.google.com"
_METHODS: Final = ("client_secret_basic", "client_secret_post", "none")


class Tokens(msgspec.Struct, frozen=True, kw_only=True):
    """The tokens of one user for one configured service."""

    entry: str
    scopes: list[str]
    server: ServerMetadata
    client: OAuthClient | None
    """The client that the gateway has registered, or None for the client of the configuration."""
    access_token: str = ""
    """An empty string until the server has issued tokens."""
    expires_at: float | None = None
    refresh_token: str | None = None
    since: float = 0.0
    used_at: float = 0.0
    proof_key: str = ""
    """The private key (PEM) that the access token is bound to (DPoP), or an empty string."""

    def __repr__(self) -> str:
        """Hide the tokens from tracebacks and logs."""
        return f"Tokens(entry={self.entry})"


class ServiceEntry(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A configured service that users sign in to."""

    name: str
    """The configuration path, such as `upstreams.github`."""
    config: AuthorizationCode
    service_url: str
    endpoint: TokenEndpoint
    client: OAuthClient
    """The client of the configuration. Without a `client_id`, the gateway registers itself as a client."""

    @property
    def title(self) -> str:
        return self.name.partition(".")[2]

    @property
    def is_mcp(self) -> bool:
        return self.name.startswith("upstreams.")

    @property
    def key(self) -> str:
        """The key of stored records. A new URL, client or issuer changes the key, so old tokens are not used."""
        return entry_key(self.name, self.config, self.service_url)

    @property
    def kept_seconds(self) -> float:
        """The number of seconds for which tokens are stored.

        This is a day longer than `idle`, so that idle tokens can be revoked.
        """
        return self.config.idle.total_seconds() + 86_400

    def callback_url(self, base_url: str | None) -> str:
        return f"{base_url}{PAGES}/callback/{self.name}"

    def client_document(self, base_url: str) -> dict[str, Json]:
        """Return the client metadata document (draft-ietf-oauth-client-id-metadata-document)."""
        client_id = f"{base_url}{CLIENT_DOCUMENTS}/{self.title}.json"
        return {"client_id": client_id, **_client_metadata(self.callback_url(base_url), method="none")}

    def unknown_user(self) -> ExecutionError:
        return ExecutionError(
            f"{self.title} requires that you sign in, but this server does not identify its users. "
            "The operator can set `auth`"
        )

    async def find_server(self, metadata_url: str | None) -> ServerMetadata:
        """Return the metadata of the authorization server. Raise ExecutionError if the server does not support PKCE.

        `metadata_url` is the URL of the service's metadata, if a challenge of the service contained this URL.
        """
        server = await self._discover(metadata_url)
        if not server.authorization_url or not is_trustworthy(server.authorization_url):
            raise ExecutionError(f"{server.issuer} has no authorization endpoint with an https URL")
        # MCP 2025-11-25 basic/authorization: without this member, the server does not support PKCE. For other services,
        # the member is optional, and a server that does not support PKCE ignores the parameters.
        methods = server.challenge_methods
        if "S256" not in (methods or ()) and (methods is not None or self.is_mcp):
            raise ExecutionError(f"{server.issuer} does not support PKCE with S256, which the gateway requires")
        if server.resource is None and self.is_mcp:
            # RFC 8707, MCP "Canonical Server URI".
            return replace(server, resource=urlunsplit(urlsplit(self.service_url)._replace(query="", fragment="")))
        return server

    async def _discover(self, metadata_url: str | None) -> ServerMetadata:
        sender = self.endpoint.sender
        if self.config.issuer is not None:
            return await discover(self.config.issuer, sender)
        try:
            return await discover_of_service(self.service_url, sender, named=metadata_url)
        except NotFoundError:
            if not self.is_mcp or metadata_url is not None:
                raise
        # MCP 2025-03-26 basic/authorization: the MCP server is also the authorization server, even without metadata.
        origin = urlunsplit(urlsplit(self.service_url)._replace(path="", query="", fragment=""))
        try:
            return await discover(origin, sender)
        except NotFoundError:
            return ServerMetadata(
                issuer=origin,
                authorization_url=f"{origin}/authorize",
                token_url=f"{origin}/token",
                registration_url=f"{origin}/register",
                challenge_methods=["S256"],
            )

    async def register(self, server: ServerMetadata, redirect_uri: str) -> tuple[OAuthClient, float | None]:
        """Register the gateway (RFC 7591). Return the client and the Unix time at which its secret expires."""
        url = server.registration_url
        if url is None:
            raise ExecutionError(
                f"{server.issuer} does not allow clients to register. Register the redirect URI {redirect_uri} there, "
                f"and set `client_id` of {self.name}"
            )
        method = next((each for each in _METHODS if each in server.auth_methods), _METHODS[0])
        body = orjson.dumps(_client_metadata(redirect_uri, method=method))
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        status, _, content = await post(self.endpoint.sender, url, headers, body)
        try:
            found = orjson.loads(content)
        except orjson.JSONDecodeError:
            found = {}
        client_id = found.get("client_id") if isinstance(found, dict) else None
        if status not in {200, 201} or not isinstance(client_id, str) or not client_id:
            said = f" {found.get('error', '')}".rstrip() if isinstance(found, dict) else ""
            raise self.endpoint.failure(f"{url} did not register the gateway as a client (status {status}{said})")
        secret, expires = found.get("client_secret"), found.get("client_secret_expires_at")
        method = found.get("token_endpoint_auth_method") or method
        client = OAuthClient(client_id=client_id)
        if isinstance(secret, str) and method != "none":
            client = replace(client, secret=secret, method="post" if method == "client_secret_post" else "basic")
        # RFC 7591 §3.2.1: 0 means that the secret does not expire.
        return client, expires if isinstance(expires, int) and expires > 0 else None

    def scopes(self, challenged: Sequence[str], server: ServerMetadata) -> list[str]:
        """Return the scopes to request: those of the configuration and of the challenge.

        If there are none, return all scopes that the service announces.
        """
        scopes = dict.fromkeys([*self.config.scopes, *challenged] or server.resource_scopes)
        if _OFFLINE in server.scopes and scopes:
            scopes[_OFFLINE] = None
        return list(scopes)

    async def exchange(self, wanted: Tokens, code: str, *, redirect_uri: str, verifier: str, now: float) -> Tokens:
        """Exchange an authorization code for tokens. The result is a copy of `wanted` that contains the tokens."""
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": redirect_uri,
            "code_verifier": verifier,
        }
        server = wanted.server
        # A service that does not support DPoP rejects bound tokens, even if its authorization server issues them.
        key = new_key() if server.binds_tokens and ALGORITHM in server.dpop_algorithms else ""
        wanted = replace(wanted, since=now, used_at=now, proof_key=key)
        return await self._request(wanted, form, secrets=[code, verifier], now=now)

    async def refresh(self, tokens: Tokens, refresh_token: str, *, now: float) -> Tokens:
        form = {"grant_type": "refresh_token", "refresh_token": refresh_token}
        return await self._request(tokens, form, secrets=[refresh_token], now=now)

    async def _request(self, before: Tokens, form: Mapping[str, str], *, secrets: Sequence[str], now: float) -> Tokens:
        if before.server.resource is not None:
            form = {**form, "resource": before.server.resource}
        client, key = before.client or self.client, before.proof_key
        response = await self.endpoint.post(before.server, form, client, proof_key=key, secrets=secrets)
        token, key, seconds = read_token(response, before.server, proof_key=key)
        found = content_of(response)
        refresh_token, scope = found.get("refresh_token"), found.get("scope")
        return replace(
            before,
            access_token=token,
            expires_at=None if found.get("expires_in") is None else now + seconds,
            # RFC 6749 §6: without a new refresh token, the old one stays valid.
            refresh_token=refresh_token if isinstance(refresh_token, str) and refresh_token else before.refresh_token,
            scopes=scope.split() if isinstance(scope, str) else before.scopes,
            proof_key=key,
        )

    async def revoke(self, tokens: Tokens) -> None:
        """Revoke tokens if the authorization server supports revocation (RFC 7009). Log failures."""
        if tokens.server.revocation_url is None:
            return
        form = {"token": tokens.refresh_token or tokens.access_token}
        server = replace(tokens.server, token_url=tokens.server.revocation_url)
        try:
            await self.endpoint.post(server, form, tokens.client or self.client, is_revocation=True)
        except ExecutionError as error:
            log.warning("tokens not revoked", entry=self.name, reason=str(error))


def entry_key(name: str, config: AuthorizationCode, service_url: str) -> str:
    return digest_of(name, service_url, config.issuer or "", config.client_id, str(config.shared))


def authorization_url(  # noqa: PLR0913 - the parameters of RFC 6749 §4.1.1 and RFC 7636 §4.3
    server: ServerMetadata,
    *,
    client_id: str,
    redirect_uri: str,
    scopes: Sequence[str],
    state: str,
    verifier: str,
    **more: str,
) -> str:
    """Return the URL of the page on which a user signs in."""
    query = {
        "response_type": "code",
        "client_id": client_id,
        "redirect_uri": redirect_uri,
        "state": state,
        "code_challenge": encoded(hashlib.sha256(verifier.encode()).digest()),
        "code_challenge_method": "S256",
        **({"scope": " ".join(scopes)} if scopes else {}),
        **more,
    }
    separator = "&" if urlsplit(server.authorization_url).query else "?"
    return f"{server.authorization_url}{separator}{urlencode(query)}"


def offline_parameters(server: ServerMetadata, scopes: Sequence[str]) -> dict[str, str]:
    """Return the parameters that the server requires to issue a refresh token."""
    if server.issuer == _GOOGLE:  # https://developers.google.com/identity/protocols/oauth2/web-server
        return {"access_type": "offline", "prompt": "consent"}
    # OpenID Connect Core §11: without consent, the server ignores `offline_access`.
    return {"prompt": "consent"} if _OFFLINE in scopes else {}


def check_response(response: Mapping[str, str], server: ServerMetadata) -> None:
    """Check an authorization response, or raise ExecutionError.

    1. `iss` is exactly the expected issuer. A server that announces `iss` must send it (RFC 9207 §2.4).
    2. The response is not an error (RFC 6749 §4.1.2.1).
    3. The response contains a code.
    """
    issuer = response.get("iss")
    if (issuer is None and server.returns_issuer) or (issuer is not None and issuer != server.issuer):
        raise ExecutionError("the response is from another authorization server")
    if "error" in response:
        said = " ".join(filter(None, (response["error"], response.get("error_description"))))
        raise ExecutionError(strip_control_characters(said)[:400])
    if not response.get("code"):
        raise ExecutionError("the authorization response contains no `code`")


def digest_of(*parts: str) -> str:
    # Prefix each part with its length, so that the concatenation is unambiguous.
    return hashlib.sha256("".join(f"{len(part)}:{part}" for part in parts).encode()).hexdigest()[:32]


def _client_metadata(redirect_uri: str, *, method: str) -> dict[str, Json]:
    is_local = redirect_uri.startswith("http:")
    return {
        "client_name": "mcp-gateway",
        "redirect_uris": [redirect_uri],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": method,
        "application_type": "native" if is_local else "web",
    }
