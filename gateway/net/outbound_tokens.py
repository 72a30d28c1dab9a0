"""Requests access tokens for the gateway itself and for its callers.

Callers' access tokens are exchanged and never forwarded. Tokens are cached until they expire or the service responds
with 401.
"""

import asyncio
import hashlib
import time
from collections.abc import Awaitable, Callable
from contextvars import Context
from typing import Final, Generic, Self, TypeVar

import msgspec

from gateway.access.identity import Credential, Subject
from gateway.access.jose import is_installed
from gateway.bounded_map import BoundedMap
from gateway.config.models.outbound_auth import ClientCredentials, EnterpriseAuth, TokenExchange, TokenRequest
from gateway.config.secrets.redactor import ObtainedSecrets
from gateway.deadline import DeadlineExceededError
from gateway.errors import ExecutionError
from gateway.net.request import MAX_ATTEMPTS, Rejection, Request
from gateway.net.server_metadata import (
    ServerMetadata,
    asks_for_dpop,
    challenge_parameters,
    check_pinned,
    discover,
    discover_of_service,
)
from gateway.net.token_client import (
    ACCESS_TOKEN,
    OAuthClient,
    TokenEndpoint,
    TokenRejectedError,
    new_key,
    note_nonce,
    read_token,
    with_token,
)

V = TypeVar("V")

_MAX_KEPT: Final = 4096
"""The maximum number of cached values. With token exchange, one token per caller is cached."""
_FETCH_SECONDS: Final = 30.0
"""The timeout of a token request, including the request for the server's metadata."""
_METADATA_SECONDS: Final = 600.0
"""How long the metadata of an authorization server is cached."""
_ID_TOKEN: Final = "urn:ietf:params:oauth:token-type:id_token"  # noqa: S105 - RFC 8693 §3, no secret
_ID_JAG: Final = "urn:ietf:params:oauth:token-type:id-jag"
_EXCHANGE: Final = "urn:ietf:params:oauth:grant-type:token-exchange"
_JWT_BEARER: Final = "urn:ietf:params:oauth:grant-type:jwt-bearer"
_WITHOUT_PROOF: Final = ("invalid_dpop_proof", "use_dpop_nonce")
"""Error codes with which an authorization server requires a DPoP proof (RFC 9449 §5, §8)."""


class SharedFetches(Generic[V]):
    """Caches values by key, and fetches missing values once for all concurrent callers.

    A cancelled caller does not cancel the fetch, because other callers can wait for it. Fetches must end by themselves,
    for example by a timeout.
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock: Final = clock
        self._kept: Final[BoundedMap[bytes, V]] = BoundedMap(_MAX_KEPT, clock=clock)
        self._running: Final[dict[bytes, asyncio.Task[V | ExecutionError]]] = {}

    async def close(self) -> None:
        running = list(self._running.values())
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    async def get(self, key: bytes, fetch: Callable[[], Awaitable[tuple[V, float]]]) -> V:
        """Return the cached value for `key`, or call `fetch` and cache its result.

        `fetch` returns the value and the number of seconds to cache it. If `fetch` fails, each waiting caller gets an
        ExecutionError.
        """
        kept = self._kept.get(key)
        if kept is not None:
            return kept
        task = self._running.get(key)
        if task is None:
            # Use a new context, because the log lines and spans of a fetch do not belong to a single call.
            task = asyncio.get_running_loop().create_task(self._fetch(key, fetch), name="fetch", context=Context())
            self._running[key] = task
        await asyncio.wait([task])  # Does not cancel the task if the wait is cancelled.
        if task.cancelled():
            raise ExecutionError("The server is shutting down")
        result = task.result()
        if isinstance(result, ExecutionError):
            # A new exception for each caller, because a traceback grows each time its exception is raised.
            raise ExecutionError(str(result)) from result
        return result

    def discard(self, key: bytes, is_bad: Callable[[V], bool]) -> None:
        """Remove the cached value of a key if `is_bad(value)` is true."""
        kept = self._kept.get(key)
        if kept is not None and is_bad(kept):
            self._kept.discard(key)

    async def _fetch(self, key: bytes, fetch: Callable[[], Awaitable[tuple[V, float]]]) -> V | ExecutionError:
        try:
            value, seconds = await fetch()
        except ExecutionError as error:
            # Return the error, because asyncio would log an exception that no task retrieves.
            return error
        finally:
            del self._running[key]
        # Do not await between the removal from `_running` and this line, so that the next caller finds the value.
        if seconds > 0:
            self._kept.put(key, value, expires=self._clock() + seconds)
        return value


class AccessToken(msgspec.Struct, frozen=True):
    value: str
    proof_key: str
    """The private key that the token is bound to (DPoP). Empty for a bearer token."""

    def __repr__(self) -> str:
        """Hide the secrets, because asyncio logs the results of tasks."""
        return "AccessToken()"


class OutboundTokens:
    """Caches access tokens and server metadata, also across configuration reloads."""

    def __init__(self) -> None:
        self.tokens: Final[SharedFetches[AccessToken]] = SharedFetches()
        self.servers: Final[SharedFetches[ServerMetadata]] = SharedFetches()
        self.issuers: Final[dict[bytes, str | None]] = {}
        """The issuer that was found first for each `TokenAuthorization.key`."""
        self.bound: Final[set[bytes]] = set()
        """Each `TokenAuthorization.key` whose service requires tokens that are bound to a private key (DPoP)."""
        self.secrets: Final = ObtainedSecrets()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.tokens.close()
        await self.servers.close()


class TokenAuthorization(msgspec.Struct, frozen=True, kw_only=True):
    """Requests access tokens (`client_credentials`, `token_exchange` or `enterprise`), and adds them to requests."""

    summary: str
    is_per_caller: bool
    config: TokenRequest
    client: OAuthClient
    service_url: str
    """URL of the service. If the configuration names no authorization server, the service's metadata names one."""
    endpoint: TokenEndpoint
    key: bytes
    """A digest of the settings. Authorizations with the same digest share cached tokens."""
    subject_issuers: frozenset[str]
    """The accepted issuers of callers' tokens. Tokens of other issuers are never sent to the authorization server."""
    outbound: OutboundTokens

    async def sign(self, request: Request, subject: Subject | None) -> Request:
        token = self._token_of(subject)
        if self.is_per_caller:
            if subject is None:
                return request  # The gateway itself has no access token to exchange.
            if token is None:
                raise ExecutionError(
                    "This service requires an access token of the caller, but the request contained none. "
                    "Sign in to the gateway with OAuth (API keys and stdio provide no access token)"
                )
            if subject.issuer not in self.subject_issuers:
                raise ExecutionError(
                    f"This service requires an access token issued by {' or '.join(sorted(self.subject_issuers))}. "
                    f"Your token was issued by {subject.issuer}"
                )
        found = await self.outbound.tokens.get(self._key_of(token), lambda: self._fetch(token))
        return with_token(request, found.value, key=found.proof_key, nonces=self.endpoint.nonces)

    async def renew(self, rejection: Rejection, subject: Subject | None) -> bool:
        token = self._token_of(subject)
        if rejection.status != 401 or (self.is_per_caller and token is None):
            return False
        request, challenges = rejection.request, rejection.headers.getall("WWW-Authenticate", ())
        sent = request.credentials or ""
        is_bound = sent.startswith("DPoP ")
        if is_bound and note_nonce(self.endpoint.nonces, request.url, rejection.headers):
            is_about_nonce = challenge_parameters(challenges).get("error") == "use_dpop_nonce"
            if is_about_nonce and rejection.attempt < MAX_ATTEMPTS:
                return True
        asks_for_proof = is_installed() and asks_for_dpop(challenges)
        if asks_for_proof and not is_bound and self.key not in self.outbound.bound:
            self.outbound.bound.add(self.key)
        elif rejection.attempt > (2 if is_bound else 1):
            return False
        # Compare with the token that was sent, because another call could have fetched a new token.
        self.outbound.tokens.discard(self._key_of(token), lambda kept: kept.value == sent.partition(" ")[2])
        return True

    def _token_of(self, subject: Subject | None) -> Credential | None:
        return subject.access_token if self.is_per_caller and subject is not None else None

    def _key_of(self, token: Credential | None) -> bytes:
        # The key has a fixed length, so that the concatenation is unambiguous.
        return self.key if token is None else hashlib.sha256(self.key + token.secret.encode()).digest()

    async def _fetch(self, subject: Credential | None) -> tuple[AccessToken, float]:
        try:
            async with asyncio.timeout(_FETCH_SECONDS):
                server = await self.outbound.servers.get(self.key, self._find_server)
                token, key, seconds = await self._obtain(server, None if subject is None else subject.secret)
            # Mask the token before it is used. Use a thread, because computing the token's encoded forms is slow.
            await asyncio.to_thread(self.outbound.secrets.add, token)
        except ExecutionError:
            self.outbound.servers.discard(self.key, lambda _: True)  # the token endpoint could have moved
            raise
        except TimeoutError as error:
            raise DeadlineExceededError("Signing in", _FETCH_SECONDS) from error
        return AccessToken(token, key), seconds

    async def _find_server(self) -> tuple[ServerMetadata, float]:
        config = self.config
        try:
            if config.token_url is not None:
                server = ServerMetadata(token_url=config.token_url)
            elif config.issuer is not None:
                server = await discover(config.issuer, self.endpoint.sender)
            else:
                server = await discover_of_service(self.service_url, self.endpoint.sender)
        except ExecutionError as error:
            raise self.endpoint.failure(str(error)) from error
        known = self.outbound.issuers.setdefault(self.key, server.issuer)
        check_pinned(known, server.issuer, service_url=self.service_url)
        return server, _METADATA_SECONDS

    async def _obtain(self, server: ServerMetadata, subject: str | None) -> tuple[str, str, float]:
        form = await self._form(server, subject)
        key = new_key() if self.key in self.outbound.bound else ""
        try:
            response = await self.endpoint.post(server, form, self.client, proof_key=key)
        except TokenRejectedError as error:
            if key or error.error not in _WITHOUT_PROOF or not is_installed():
                raise
            key = new_key()
            response = await self.endpoint.post(server, form, self.client, proof_key=key)
        return read_token(response, server, proof_key=key)

    async def _form(self, server: ServerMetadata, subject: str | None) -> dict[str, str]:
        config = self.config
        if isinstance(config, EnterpriseAuth):
            scopes = {"scope": " ".join(config.scopes)} if config.scopes else {}
            assertion = await self._identity_assertion(config, server, subject)
            return {"grant_type": _JWT_BEARER, "assertion": assertion, **scopes}
        form = {"grant_type": "client_credentials"}
        if isinstance(config, TokenExchange):
            form = {
                "grant_type": _EXCHANGE,
                "subject_token": subject or "",
                "subject_token_type": ACCESS_TOKEN,
                "requested_token_type": ACCESS_TOKEN,
            }
        elif isinstance(config, ClientCredentials) and config.assertion is not None:
            form = {"grant_type": _JWT_BEARER, "assertion": config.assertion}
        if config.audience is not None:
            form["audience"] = config.audience
        return {**form, **self._target(server)}

    async def _identity_assertion(self, config: EnterpriseAuth, server: ServerMetadata, subject: str | None) -> str:
        idp = config.idp
        try:
            provider = await discover(idp.issuer, self.endpoint.sender)
        except ExecutionError as error:
            raise self.endpoint.failure(str(error)) from error
        form = {
            "grant_type": _EXCHANGE,
            "requested_token_type": _ID_JAG,
            "subject_token": idp.subject_token or subject or "",
            "subject_token_type": ACCESS_TOKEN if idp.subject_token is None else _ID_TOKEN,
            "audience": config.audience or server.issuer or server.token_url,
            **self._target(server),
        }
        client = OAuthClient(client_id=idp.client_id, secret=idp.client_secret)
        response = await self.endpoint.post(provider, form, client)
        return read_token(response, provider, kinds=(_ID_JAG,))[0]

    def _target(self, server: ServerMetadata) -> dict[str, str]:
        form = {"scope": " ".join(self.config.scopes)} if self.config.scopes else {}
        # RFC 8707 §2: the server can restrict the token to this service.
        resource = self.config.resource or server.resource
        return form if resource is None else {**form, "resource": resource}
