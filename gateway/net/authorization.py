"""Sets the `Authorization` header of requests to a service, as configured by `auth`.

Callers' access tokens are exchanged and never forwarded. Tokens are cached until they expire or the service responds
with 401.
"""

import asyncio
import base64
import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, Protocol

import msgspec
from msgspec.structs import replace

from gateway.access.credentials import Credential
from gateway.access.identity import Subject
from gateway.access.jose import is_installed, read_private_key
from gateway.config.diagnostics.problems import Problems
from gateway.config.machine_facts import content_digest
from gateway.config.models.backends import Connection
from gateway.config.models.outbound_auth import (
    PEM,
    AuthorizationCode,
    BasicAuth,
    EnterpriseAuth,
    IdentityProvider,
    OutboundAuth,
    TokenExchange,
    TokenRequest,
)
from gateway.config.secrets.redactor import Redactor
from gateway.deadline import DeadlineExceededError
from gateway.distribution import install_command
from gateway.errors import ExecutionError
from gateway.net.authorization_code import ServiceEntry
from gateway.net.clients import HttpClients
from gateway.net.json_fetcher import MAX_BYTES
from gateway.net.outbound_tokens import OutboundTokens
from gateway.net.proofs import note_nonce, with_token
from gateway.net.request import Rejection, Request, bound
from gateway.net.sender import Sender, compile_sender
from gateway.net.server_metadata import ServerMetadata, asks_for_dpop, challenge_parameters, check_pinned
from gateway.net.sign_ins import SignIns
from gateway.net.tls import ClientIdentity
from gateway.net.token_client import (
    AccessToken,
    ClientAuthentication,
    ClientKey,
    ClientSecret,
    PublicClient,
    TokenClient,
    TokenEndpoint,
)
from gateway.net.user_authorization import UserAuthorization
from gateway.threads import DaemonThreadPool

AUTHORIZATION: Final = "Authorization"
_UNAUTHORIZED: Final = 401
_MAX_ATTEMPTS: Final = 4
_FETCH_SECONDS: Final = 30.0
"""The timeout of a token request, including the request for the server's metadata."""
_METADATA_SECONDS: Final = 600.0
"""How long the metadata of an authorization server is cached."""


class Authorization(Protocol):
    """A way to sign in to one service."""

    @property
    def summary(self) -> str:
        """Describes the method, without secrets."""

    @property
    def is_per_caller(self) -> bool:
        """Whether each caller has separate credentials."""

    async def sign(self, request: Request, subject: Subject | None, *, deadline: float) -> Request:
        """Return the request with the credentials of this caller. None is the gateway itself.

        Raises:
            ExecutionError: The caller has no credentials. The message is for the model and contains no secrets.
            DeadlineExceededError: The credentials were not available by `deadline` (the event loop's clock).
        """

    async def renew(self, rejection: Rejection, subject: Subject | None, *, deadline: float) -> bool:
        """Return whether to sign and send a rejected request again.

        Raises:
            ExecutionError: The caller must sign in first.
        """


class FixedAuthorization(msgspec.Struct, frozen=True, kw_only=True):
    """A fixed header from the configuration: `bearer` and `basic`."""

    summary: str
    value: str
    is_per_caller: bool = False

    def __repr__(self) -> str:
        """Hide the value from tracebacks and logs."""
        return f"FixedAuthorization({self.summary})"

    async def sign(self, request: Request, subject: Subject | None, *, deadline: float) -> Request:  # noqa: ARG002
        return replace(request, headers=(*request.headers, *bound({AUTHORIZATION: self.value})))

    async def renew(self, rejection: Rejection, subject: Subject | None, *, deadline: float) -> bool:  # noqa: ARG002
        return False


class TokenAuthorization(msgspec.Struct, frozen=True, kw_only=True):
    """Uses access tokens: `client_credentials`, `token_exchange` and `enterprise`."""

    summary: str
    is_per_caller: bool
    client: TokenClient
    key: bytes
    """Identifies the client, the service and the requested token. Authorizations with the same key share tokens."""
    subject_issuers: frozenset[str]
    """The issuers of the callers' tokens that the authorization server receives."""
    outbound: OutboundTokens
    threads: DaemonThreadPool

    async def sign(self, request: Request, subject: Subject | None, *, deadline: float) -> Request:
        token = self._token_of(subject)
        if self.is_per_caller:
            if subject is None:
                return request  # The gateway itself has no access token to exchange.
            if token is None:
                raise ExecutionError(
                    "This service requires an access token of the caller, and the request contained none: "
                    "sign in to the gateway with OAuth (API keys and stdio provide no access token)"
                )
            if subject.issuer not in self.subject_issuers:
                raise ExecutionError(
                    f"This service requires an access token of {' or '.join(sorted(self.subject_issuers))}, "
                    f"and yours was issued by {subject.issuer}"
                )
        began = asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout_at(deadline):
                found = await self.outbound.tokens.get(self._key_of(token), lambda: self._fetch(token))
        except TimeoutError as error:
            raise DeadlineExceededError("Signing in", deadline - began) from error
        return with_token(request, found.value, key=found.proof_key, nonces=self.client.endpoint.nonces)

    async def renew(self, rejection: Rejection, subject: Subject | None, *, deadline: float) -> bool:  # noqa: ARG002
        token = self._token_of(subject)
        if rejection.status != _UNAUTHORIZED or (self.is_per_caller and token is None):
            return False
        request, challenges = rejection.request, rejection.headers.getall("WWW-Authenticate", ())
        sent = next((field.value for field in request.headers if field.name == AUTHORIZATION), "")
        is_bound = sent.startswith("DPoP ")
        if is_bound and note_nonce(self.client.endpoint.nonces, request.url, rejection.headers):
            is_about_nonce = challenge_parameters(challenges).get("error") == "use_dpop_nonce"
            if is_about_nonce and rejection.attempt < _MAX_ATTEMPTS:
                return True
        asks_for_proof = is_installed() and asks_for_dpop(challenges)
        if asks_for_proof and not is_bound and self.key not in self.outbound.bound:
            self.outbound.bound.add(self.key)
        elif rejection.attempt > (2 if is_bound else 1):
            return False
        # Compare with the token that was sent, because another call could have fetched a new one since.
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
                token = await self.client.obtain(
                    server,
                    subject=None if subject is None else subject.secret,
                    is_bound=self.key in self.outbound.bound,
                )
            # Before the token is sent anywhere. Computing its encoded forms takes long, so a thread does it.
            deadline = asyncio.get_running_loop().time() + _FETCH_SECONDS
            await self.threads.run(self.outbound.secrets.add, token.value, deadline=deadline)
        except ExecutionError:
            self.outbound.servers.discard(self.key, lambda _: True)  # its token endpoint could have moved
            raise
        except TimeoutError as error:
            raise DeadlineExceededError("Signing in", _FETCH_SECONDS) from error
        return token, token.seconds

    async def _find_server(self) -> tuple[ServerMetadata, float]:
        server = await self.client.find_server()
        known = self.outbound.issuers.setdefault(self.key, server.issuer)
        check_pinned(known, server.issuer, service_url=self.client.service_url)
        return server, _METADATA_SECONDS


class OutboundServices(Protocol):
    """Shared objects needed to sign in. They outlive reloads."""

    @property
    def http(self) -> HttpClients: ...
    @property
    def outbound_tokens(self) -> OutboundTokens: ...
    @property
    def sign_ins(self) -> SignIns: ...
    @property
    def worker_threads(self) -> DaemonThreadPool: ...


def check_no_authorization(headers: Iterable[str], problems: Problems) -> None:
    """Report a configured header that `auth` sets too. `problems` must be at the headers."""
    for name in headers:
        if name.lower() == AUTHORIZATION.lower():
            problems.at(name).error("is set by the connection's `auth`; only one is allowed")


def compile_connection(
    connection: Connection,
    *,
    services: OutboundServices,
    redactor: Redactor,
    issuers: Sequence[str] | None,
    problems: Problems,
) -> Authorization | None:
    """Check a connection and compile its `auth`. For `issuers`, see `compile_authorization`."""
    sender = compile_sender(connection, problems, clients=services.http)
    if connection.auth is None:
        return None
    check_no_authorization(connection.headers, problems.at("headers"))
    return compile_authorization(
        connection.auth,
        service_url=connection.base_url,
        sender=sender,
        services=services,
        redactor=redactor,
        issuers=issuers,
        problems=problems.at("auth"),
    )


def compile_authorization(  # noqa: PLR0913 - the facts of the connection
    auth: OutboundAuth,
    *,
    service_url: str,
    sender: Sender,
    services: OutboundServices,
    redactor: Redactor,
    issuers: Sequence[str] | None,
    problems: Problems,
) -> Authorization | None:
    """Compile `auth` for the service at `service_url`. Return None if there is a problem, which is reported.

    The guard, proxy and TLS settings of `sender` also apply to the authorization server. `redactor` masks secrets in
    responses of that server. `issuers` are those of `auth.oauth`, or None if the section cannot be read.
    """
    if auth.bearer is not None:
        return FixedAuthorization(summary="bearer", value=f"Bearer {auth.bearer}")
    if auth.basic is not None:
        return FixedAuthorization(summary="basic", value=_basic(auth.basic))
    # The connection's client certificate is only for the service, and redirects must not send secrets elsewhere.
    trust = sender.identity.elsewhere
    identity = ClientIdentity(here=trust, elsewhere=trust)
    endpoint = TokenEndpoint(
        sender=replace(sender, max_redirects=0, max_bytes=MAX_BYTES, identity=identity), redactor=redactor
    )
    if auth.authorization_code is not None:
        return _compile_sign_in(
            auth.authorization_code, service_url, endpoint, sign_ins=services.sign_ins, problems=problems
        )
    config, subject_issuers = auth.token_request, frozenset[str]()
    assert config is not None  # noqa: S101 - the model has one of them
    kind = next(name for name in type(auth).model_fields if getattr(auth, name) is config)
    if auth.is_per_caller:
        config, subject_issuers = _exchanging(config, issuers, problems.at(kind))
    authentication = _compile_authentication(config, problems.at(kind))
    if authentication is None:
        return None
    return TokenAuthorization(
        summary=f"{kind} ({config.issuer or config.token_url or service_url})",
        is_per_caller=auth.is_per_caller,
        client=TokenClient(config=config, authentication=authentication, service_url=service_url, endpoint=endpoint),
        # A digest of all settings including the secret, so that a changed `auth` does not reuse old tokens.
        key=hashlib.sha256(f"{kind} {config.model_dump_json()} {service_url}".encode()).digest(),
        subject_issuers=subject_issuers,
        outbound=services.outbound_tokens,
        threads=services.worker_threads,
    )


def _exchanging(
    config: TokenRequest, issuers: Sequence[str] | None, problems: Problems
) -> tuple[TokenRequest, frozenset[str]]:
    """Return the request and the issuers whose tokens its server receives. A token never reaches another issuer's."""
    if not issuers:
        if issuers is not None:
            problems.error("requires `auth.oauth`, because other callers have no access token to exchange")
        return config, frozenset()
    if isinstance(config, TokenExchange) and config.issuer is None and config.token_url is None:
        # Ignore an issuer named by the service, which could send every caller's token to itself.
        if len(issuers) > 1:
            problems.error("needs `issuer`, because `auth.oauth` has more than one")
        config = config.model_copy(update={"issuer": issuers[0]})
    server: TokenExchange | IdentityProvider
    if isinstance(config, EnterpriseAuth):
        server, problems = config.idp, problems.at("idp")
    else:
        assert isinstance(config, TokenExchange)  # noqa: S101 - the only other one for each caller
        server = config
    for unknown in set(server.subject_issuers).difference(issuers):
        problems.at("subject_issuers").error(f"{unknown} is not an issuer of `auth.oauth`")
    if server.subject_issuers or len(issuers) == 1:
        return config, frozenset(server.subject_issuers or issuers)
    if server.issuer not in issuers:
        problems.error("needs `subject_issuers`, because `auth.oauth` has several issuers, and this is not one of them")
    return config, frozenset([server.issuer or ""])


def _compile_sign_in(
    config: AuthorizationCode, service_url: str, endpoint: TokenEndpoint, *, sign_ins: SignIns, problems: Problems
) -> Authorization | None:
    place = problems.at("authorization_code")
    if not is_installed():
        place.error(f"needs packages that are not installed: {install_command('auth')}")
        return None
    authentication = None
    if config.client_secret is not None or config.private_key is not None:
        authentication = _compile_authentication(config, place)
        if authentication is None:
            return None
    entry = ServiceEntry(
        name=problems.path.removesuffix(".auth"),
        config=config,
        service_url=service_url,
        endpoint=endpoint,
        authentication=authentication,
    )
    sign_ins.add(entry)
    return UserAuthorization(
        summary=f"authorization_code ({config.issuer or service_url})",
        is_per_caller=not config.shared,
        entry=entry,
        sign_ins=sign_ins,
    )


def key_file_of(auth: OutboundAuth | None, problems: Problems) -> list[Path]:
    """Return the file with the private key, so that it can be watched. `problems` must be at `auth`."""
    config = None if auth is None else auth.client
    if config is None or config.private_key is None or PEM in config.private_key:
        return []
    return [problems.directory / config.private_key]


def _basic(basic: BasicAuth) -> str:
    return f"Basic {base64.b64encode(f'{basic.username}:{basic.password}'.encode()).decode('ascii')}"  # RFC 7617 §2.1


def _compile_authentication(
    config: TokenRequest | AuthorizationCode, problems: Problems
) -> ClientAuthentication | None:
    if config.private_key is None and config.client_secret is None:
        return PublicClient(client_id=config.client_id)
    if config.private_key is None:
        method = config.client_auth if isinstance(config, TokenRequest) else None
        return ClientSecret(client_id=config.client_id, secret=config.client_secret or "", method=method)
    problems, pem = problems.at("private_key"), config.private_key
    if not is_installed():
        problems.error(f"needs packages that are not installed: {install_command('auth')}")
        return None
    try:
        if PEM not in pem:
            file = problems.directory / pem
            content_digest(file)  # A renewed key changes the configuration.
            pem = file.read_text(encoding="ascii")
        return ClientKey(client_id=config.client_id, key=read_private_key(pem), key_id=config.key_id)
    except ValueError as error:
        problems.error(str(error))
    except OSError as error:
        problems.error(f"is neither a private key in PEM nor a file that can be read: {error.strerror}")
    return None
