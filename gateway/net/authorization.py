"""Sets the `Authorization` header of requests to a service, as configured by `auth`."""

import base64
import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, Protocol

import msgspec
from msgspec.structs import replace

from gateway.access.identity import Subject
from gateway.access.jose import is_installed, read_private_key
from gateway.config.diagnostics.problems import Problems
from gateway.config.models.backends import Connection
from gateway.config.models.outbound_auth import (
    PEM,
    AuthorizationCode,
    EnterpriseAuth,
    IdentityProvider,
    OutboundAuth,
    TokenExchange,
    TokenRequest,
)
from gateway.config.secrets.redactor import Redactor
from gateway.distribution import install_command
from gateway.net.authorization_code import ServiceEntry, Tokens
from gateway.net.clients import HttpClients
from gateway.net.outbound_tokens import OutboundTokens, TokenAuthorization
from gateway.net.request import AUTHORIZATION, MAX_ATTEMPTS, Rejection, Request, bound
from gateway.net.sender import Sender, compile_sender
from gateway.net.server_metadata import MAX_BYTES, asks_for_dpop, challenge_parameters, trusted_metadata_url
from gateway.net.sign_ins import SHARED, SignInRequiredError, SignIns
from gateway.net.token_client import OAuthClient, TokenEndpoint, note_nonce, with_token
from gateway.threads import DaemonThreadPool

_MAX_REFRESH_ATTEMPT: Final = 2
_MARGIN_SECONDS: Final = 5.0


class Authorization(Protocol):
    """A method to authenticate requests to one service."""

    @property
    def summary(self) -> str:
        """A description of the authorization, without any secrets."""

    @property
    def is_per_caller(self) -> bool:
        """Whether each caller has separate credentials."""

    async def sign(self, request: Request, subject: Subject | None) -> Request:
        """Return the request with the credentials of `subject`. None means the gateway itself.

        Raises:
            ExecutionError: The caller has no credentials. The message is for the model and contains no secrets.
        """

    async def renew(self, rejection: Rejection, subject: Subject | None) -> bool:
        """Renew rejected credentials. Return whether to retry, or raise ExecutionError if the caller must sign in."""


class FixedAuthorization(msgspec.Struct, frozen=True, kw_only=True):
    """Sends a fixed header from the configuration (`bearer` or `basic`)."""

    summary: str
    value: str
    is_per_caller: bool = False

    def __repr__(self) -> str:
        """Hide the value from tracebacks and logs."""
        return f"FixedAuthorization({self.summary})"

    async def sign(self, request: Request, subject: Subject | None) -> Request:  # noqa: ARG002
        return replace(request, headers=(*request.headers, *bound({AUTHORIZATION: self.value})))

    async def renew(self, rejection: Rejection, subject: Subject | None) -> bool:  # noqa: ARG002
        return False


class UserAuthorization(msgspec.Struct, frozen=True, kw_only=True):
    """Sends the access token of a signed-in user (`authorization_code`)."""

    summary: str
    is_per_caller: bool
    entry: ServiceEntry
    sign_ins: SignIns

    async def sign(self, request: Request, subject: Subject | None) -> Request:
        is_use = subject is not None and subject.is_calling
        name, tokens = await self.sign_ins.tokens(self.entry, self._owner(subject), is_use=is_use)
        if tokens is not None and self.sign_ins.is_over(tokens, _MARGIN_SECONDS):
            tokens = await self.sign_ins.refreshed(self.entry, name, tokens)
        if tokens is not None:
            return with_token(request, tokens.access_token, key=tokens.proof_key, nonces=self.entry.endpoint.nonces)
        # Send no token: an MCP server's challenge lists the required scopes, and no user can sign in without a subject.
        if self.entry.is_mcp or subject is None:
            return request
        raise SignInRequiredError(self.sign_ins, self.entry, subject)

    async def renew(self, rejection: Rejection, subject: Subject | None) -> bool:
        request, headers = rejection.request, rejection.headers
        challenges = headers.getall("WWW-Authenticate", ())
        challenge = challenge_parameters(challenges)
        sent = request.credentials
        name, tokens = await self.sign_ins.tokens(self.entry, self._owner(subject))
        if rejection.status == 403:
            if sent is None or tokens is None or challenge.get("error") != "insufficient_scope":
                return False
            raise self._required(subject, challenges, tokens)
        is_new_nonce = note_nonce(self.entry.endpoint.nonces, request.url, headers)
        if is_new_nonce and challenge.get("error") == "use_dpop_nonce" and rejection.attempt < MAX_ATTEMPTS:
            return True
        if sent is None or tokens is None:
            raise self._required(subject, challenges)
        if sent.partition(" ")[2] != tokens.access_token:
            return rejection.attempt < MAX_ATTEMPTS  # Another call has refreshed the tokens.
        # The first attempt can fail because of the nonce, or with a token that another call has refreshed.
        if tokens.refresh_token is not None and rejection.attempt <= _MAX_REFRESH_ATTEMPT:
            fresh = await self.sign_ins.refreshed(self.entry, name, tokens)
            if fresh is not None:
                return True
        await self.sign_ins.forget(name, tokens)
        raise self._required(subject, challenges)

    def _owner(self, subject: Subject | None) -> str | None:
        if self.entry.config.shared:
            return SHARED
        if subject is not None and subject.key is None:
            raise self.entry.unknown_user()
        return None if subject is None else subject.key

    def _required(
        self, subject: Subject | None, challenges: Sequence[str], granted: Tokens | None = None
    ) -> SignInRequiredError:
        challenge = challenge_parameters(challenges)
        before = () if granted is None else granted.scopes
        return SignInRequiredError(
            self.sign_ins,
            self.entry,
            subject,
            scopes=list(dict.fromkeys([*before, *challenge.get("scope", "").split()])),
            metadata_url=trusted_metadata_url(challenge, self.entry.service_url) if self.entry.is_mcp else None,
            binds_tokens=asks_for_dpop(challenges),
        )


class OutboundServices(Protocol):
    """Objects that outbound authorization uses. They are kept across configuration reloads."""

    @property
    def http(self) -> HttpClients: ...
    @property
    def outbound_tokens(self) -> OutboundTokens: ...
    @property
    def sign_ins(self) -> SignIns: ...
    @property
    def worker_threads(self) -> DaemonThreadPool: ...


def check_no_authorization(headers: Iterable[str], problems: Problems) -> None:
    """Report an `Authorization` header in the configured `headers`, because `auth` sets this header."""
    for name in headers:
        if name.lower() == AUTHORIZATION.lower():
            problems.at(name).error("is already set by the connection's `auth`. Remove one of them")


def compile_connection(
    connection: Connection,
    *,
    services: OutboundServices,
    redactor: Redactor,
    issuers: Sequence[str] | None,
    problems: Problems,
) -> Authorization | None:
    """Compile the `auth` of a connection, and report problems of all its settings. See `compile_authorization`."""
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
    """Compile `auth` for the service at `service_url`. Report problems, and return None if `auth` cannot be used.

    The proxy, the TLS settings and the address guard of `sender` also apply to the authorization server. `redactor`
    masks secrets in the responses of that server. `issuers` lists the issuers of callers' access tokens (`auth.oauth`),
    or is None if they are unknown.
    """
    if auth.bearer is not None:
        return FixedAuthorization(summary="bearer", value=f"Bearer {auth.bearer}")
    if auth.basic is not None:
        pair = base64.b64encode(f"{auth.basic.username}:{auth.basic.password}".encode()).decode()  # RFC 7617 §2.1
        return FixedAuthorization(summary="basic", value=f"Basic {pair}")
    # The connection's client certificate is only for the service, and redirects must not send secrets elsewhere.
    sender = replace(sender, max_redirects=0, max_bytes=MAX_BYTES, trust=(sender.trust[1], sender.trust[1]))
    endpoint = TokenEndpoint(sender=sender, redactor=redactor)
    if auth.authorization_code is not None:
        return _compile_sign_in(
            auth.authorization_code, service_url, endpoint, sign_ins=services.sign_ins, problems=problems
        )
    config, subject_issuers = auth.token_request, frozenset[str]()
    assert config is not None  # noqa: S101 - the model has one of them
    kind = next(name for name in type(auth).model_fields if getattr(auth, name) is config)
    if auth.is_per_caller:
        config, subject_issuers = _exchanging(config, issuers, problems.at(kind))
    client = _compile_client(config, problems.at(kind))
    if client is None:
        return None
    return TokenAuthorization(
        summary=f"{kind} ({config.issuer or config.token_url or service_url})",
        is_per_caller=auth.is_per_caller,
        config=config,
        client=client,
        service_url=service_url,
        endpoint=endpoint,
        # A digest of all settings including the secret, so that a changed `auth` does not reuse old tokens.
        key=hashlib.sha256(f"{kind} {config.model_dump_json()} {service_url}".encode()).digest(),
        subject_issuers=subject_issuers,
        outbound=services.outbound_tokens,
    )


def _exchanging(
    config: TokenRequest, issuers: Sequence[str] | None, problems: Problems
) -> tuple[TokenRequest, frozenset[str]]:
    if not issuers:
        if issuers is not None:
            problems.error("requires `auth.oauth`, because other callers have no access token to exchange")
        return config, frozenset()
    if isinstance(config, TokenExchange) and config.issuer is None and config.token_url is None:
        # Ignore the issuer that the service names, because the service could name itself and collect callers' tokens.
        if len(issuers) > 1:
            problems.error("needs `issuer`, because `auth.oauth` has more than one issuer")
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
        problems.error("needs `subject_issuers`: `auth.oauth` has several issuers, but `issuer` is none of them")
    return config, frozenset([server.issuer or ""])


def _compile_sign_in(
    config: AuthorizationCode, service_url: str, endpoint: TokenEndpoint, *, sign_ins: SignIns, problems: Problems
) -> Authorization | None:
    place = problems.at("authorization_code")
    if not is_installed():
        place.error(f"needs packages that are not installed: {install_command('auth')}")
        return None
    client = _compile_client(config, place)
    if client is None:
        return None
    entry = ServiceEntry(
        name=problems.path.removesuffix(".auth"),
        config=config,
        service_url=service_url,
        endpoint=endpoint,
        client=client,
    )
    sign_ins.add(entry)
    return UserAuthorization(
        summary=f"authorization_code ({config.issuer or service_url})",
        is_per_caller=not config.shared,
        entry=entry,
        sign_ins=sign_ins,
    )


def key_files(auth: OutboundAuth | None, problems: Problems) -> list[Path]:
    """Return the files of `auth` to watch for changes: the private key, if it is in a file."""
    config = None if auth is None else auth.client
    if config is None or config.private_key is None or PEM in config.private_key:
        return []
    return [problems.directory / config.private_key]


def _compile_client(config: TokenRequest | AuthorizationCode, problems: Problems) -> OAuthClient | None:
    method = config.client_auth if isinstance(config, TokenRequest) else None
    client = OAuthClient(client_id=config.client_id, secret=config.client_secret, method=method)
    problems, pem = problems.at("private_key"), config.private_key
    if pem is None:
        return client
    if not is_installed():
        problems.error(f"needs packages that are not installed: {install_command('auth')}")
        return None
    try:
        if PEM not in pem:
            pem = (problems.directory / pem).read_text(encoding="ascii")
        read_private_key(pem)
    except ValueError as error:
        problems.error(str(error))
    except OSError as error:
        problems.error(f"is neither a private key in PEM format nor a readable file: {error.strerror}")
    else:
        return replace(client, private_key=pem, key_id=config.key_id)
    return None
