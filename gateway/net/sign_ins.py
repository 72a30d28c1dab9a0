"""Signs users in to services with the authorization code flow (RFC 6749 §4.1, MCP basic/authorization).

Threats:

- A user forwards a link: the page only accepts the caller for whom the link was created.
- An authorization code is stolen or injected: PKCE S256, and a `state` bound to the browser that opened the link.
- Two authorization servers are mixed up: `iss` must be the expected issuer (RFC 9207).
- Tokens of one service, user or entry are used for another: records are stored under a digest of all three.
"""

import asyncio
import base64
import hashlib
import hmac
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final, Protocol, TypeVar
from urllib.parse import urlencode, urlsplit, urlunsplit

import msgspec
import orjson
import structlog
from msgspec.structs import replace

from gateway.access.issuer import is_trustworthy
from gateway.access.subject import Subject
from gateway.bounded_map import BoundedMap
from gateway.config.models.outbound_auth import AuthorizationCode
from gateway.config.secrets.redactor import ObtainedSecrets
from gateway.control_characters import strip_control_characters
from gateway.errors import ExecutionError
from gateway.events import Events, SignInsChanged
from gateway.json_types import Json
from gateway.net.json_fetcher import REQUEST_SECONDS
from gateway.net.outbound_tokens import SharedFetches
from gateway.net.proofs import ALGORITHM, new_key
from gateway.net.request import Request, bound
from gateway.net.server_metadata import (
    MissingMetadataError,
    ServerMetadata,
    discover,
    discover_of_service,
    url_of,
)
from gateway.net.token_client import (
    ClientAuthentication,
    ClientSecret,
    PublicClient,
    TokenEndpoint,
    TokenRejectedError,
    content_of,
    host_of_endpoint,
    read_token,
)

log: Final = structlog.get_logger(__name__)

T = TypeVar("T")

LINK_SECONDS: Final = 600.0
"""How long a link is valid, and how long a call waits for its user."""
SHARED: Final = "shared"
PAGES: Final = "/-/sign-in"
CLIENT_DOCUMENTS: Final = "/.well-known/oauth-client"
_LEASE_SECONDS: Final = 40.0
_POLL_SECONDS: Final = 0.5
_TOUCH_SECONDS: Final = 3600.0
_SWEEP_SECONDS: Final = 3600.0
_FOREVER_SECONDS: Final = 10 * 365 * 86_400.0
_MAX_ENTRIES: Final = 1000
_OFFLINE: Final = "offline_access"
_GOOGLE: Final = "https://accounts.google.com"
_REVOKED: Final = frozenset({"invalid_grant", "invalid_client", "unauthorized_client"})
"""Errors for an invalid refresh token."""


class SecretStore(Protocol):
    """Stores bytes by name until they expire. See `EncryptedStore`."""

    async def read(self, name: str) -> bytes | None: ...
    async def write(self, name: str, content: bytes, *, expires: float) -> None: ...
    async def replace(self, name: str, before: bytes, after: bytes, *, expires: float) -> bool: ...
    async def claim(self, name: str, *, expires: float) -> bool: ...
    async def delete(self, name: str) -> bytes | None: ...
    async def names(self, prefix: str) -> list[str]: ...


class ServiceEntry(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A configured service that users sign in to."""

    name: str
    """The configuration path, such as `upstreams.github`."""
    config: AuthorizationCode
    service_url: str
    endpoint: TokenEndpoint
    authentication: ClientAuthentication | None
    """The configured client. None if the gateway has to register."""

    @property
    def title(self) -> str:
        return self.name.partition(".")[2]

    @property
    def is_mcp(self) -> bool:
        return self.name.startswith("upstreams.")

    @property
    def key(self) -> str:
        """Identifies the entry in stored records. A changed server, client or issuer invalidates tokens."""
        return entry_key(self.name, self.config, self.service_url)


def callback_url(entry: ServiceEntry, base_url: str | None) -> str:
    return f"{base_url}{PAGES}/callback/{entry.name}"


def entry_key(name: str, config: AuthorizationCode, service_url: str) -> str:
    return digest_of(name, service_url, config.issuer or "", config.client_id, str(config.shared))


class RegisteredClient(msgspec.Struct, frozen=True, kw_only=True):
    client_id: str
    secret: str | None = None
    method: str = "none"

    @property
    def authentication(self) -> ClientAuthentication:
        if self.secret is None:
            return PublicClient(client_id=self.client_id)
        is_form = self.method == "client_secret_post"
        return ClientSecret(client_id=self.client_id, secret=self.secret, method="post" if is_form else "basic")


class Tokens(msgspec.Struct, frozen=True, kw_only=True):
    """The tokens of one user for one entry."""

    entry: str
    access_token: str
    expires_at: float | None
    refresh_token: str | None
    scopes: list[str]
    server: ServerMetadata
    client: RegisteredClient | None
    """The registered client. None for the configured client."""
    resource: str | None
    since: float
    used_at: float
    proof_key: str = ""
    """The private key as PEM, if the token is bound to it (DPoP)."""

    def __repr__(self) -> str:
        """Hide the tokens from tracebacks and logs."""
        return f"Tokens(entry={self.entry})"


class PendingSignIn(msgspec.Struct, frozen=True, kw_only=True):
    """A sign-in, from the creation of its link until tokens are issued."""

    id: str
    """Digest of the link's secret."""
    entry: str
    person: str
    """The caller for whom the link was created (`Subject.key`)."""
    owner: str
    """The owner of the tokens: the caller, or `SHARED`."""
    scopes: list[str]
    metadata_url: str | None
    binds_tokens: bool
    """Whether the service has asked for a token that is bound to a key (DPoP)."""
    expires_at: float
    state: str = ""
    verifier: str = ""
    browser: str = ""
    """Digest of the cookie of the browser that opened the link."""
    redirect_uri: str = ""
    asked: list[str] = []
    server: ServerMetadata | None = None
    client: RegisteredClient | None = None
    resource: str | None = None
    is_done: bool = False
    problem: str = ""

    def __repr__(self) -> str:
        return f"PendingSignIn(entry={self.entry})"


class SignInRequiredError(ExecutionError):
    """The caller has to sign in to a service before the request can be sent."""

    def __init__(  # noqa: PLR0913 - the facts of a challenge
        self,
        sign_ins: "SignIns",
        entry: ServiceEntry,
        subject: Subject | None,
        *,
        scopes: Sequence[str] = (),
        metadata_url: str | None = None,
        binds_tokens: bool = False,
    ) -> None:
        super().__init__(f"{entry.title} requires that you sign in first")
        self.sign_ins: Final = sign_ins
        self.entry: Final = entry
        self.subject: Final = subject
        self.scopes: Final = list(scopes)
        self.metadata_url: Final = metadata_url
        self.binds_tokens: Final = binds_tokens


class SignIns:
    """The sign-ins of all users to all services. They outlive reloads."""

    def __init__(self, *, secrets: ObtainedSecrets | None = None, clock: Callable[[], float] = time.time) -> None:
        self._clock: Final = clock
        self._secrets: Final = secrets or ObtainedSecrets()
        self._masked: Final[BoundedMap[str, str]] = BoundedMap(_MAX_ENTRIES)
        """The access tokens that are masked in logs, by the name of their record."""
        self._store: SecretStore | None = None
        self._events: Events | None = None
        self._base_url: str | None = None
        self._entries: Final[BoundedMap[str, ServiceEntry]] = BoundedMap(_MAX_ENTRIES)
        self._refreshes: Final[SharedFetches[Tokens | None]] = SharedFetches()
        self._done: Final = asyncio.Condition()

    def open(self, store: SecretStore, events: Events) -> None:
        self._store, self._events = store, events

    def listen_at(self, base_url: str) -> None:
        self._base_url = base_url

    async def close(self) -> None:
        await self._refreshes.close()

    @property
    def base_url(self) -> str | None:
        return self._base_url

    def add(self, entry: ServiceEntry) -> None:
        """Register an entry, so that pages can find it by its key."""
        self._entries.put(entry.key, entry)

    def entry(self, key: str) -> ServiceEntry | None:
        return self._entries.get(key)

    async def tokens(
        self, entry: ServiceEntry, owner: str | None, *, is_use: bool = False
    ) -> tuple[str, Tokens | None]:
        """Return the tokens of `owner` and the name of their record. Without an owner, use any signed-in user.

        `is_use` restarts the time after which unused tokens are revoked.
        """
        name = record_name(entry.key, owner or "")
        if owner is None:
            name = next(iter(await self.store.names(f"tokens:{entry.key}:")), name)
        tokens = await self._read(name, Tokens)
        if tokens is not None:
            is_known = self._masked.get(name) is not None
            await self._mask(name, tokens)
            if not is_known:  # the user has signed in with another process
                self._changed(entry)
        touch_after = min(_TOUCH_SECONDS, entry.config.idle.total_seconds() / 10)
        if is_use and tokens is not None and tokens.used_at + touch_after < self._clock():
            await self._replace(entry, name, tokens, replace(tokens, used_at=self._clock()))
        return name, tokens

    async def refreshed(self, entry: ServiceEntry, name: str, stale: Tokens) -> Tokens | None:
        """Refresh the tokens, once for all waiting callers and processes.

        Returns:
            The new tokens, or None if the user has to sign in again.

        Raises:
            ExecutionError: The authorization server cannot be reached. The tokens are kept.
        """

        async def fetch() -> tuple[Tokens | None, float]:
            return await self._refresh(entry, name, stale), 0.0

        return await self._refreshes.get(name.encode(), fetch)

    async def described(self, entry: ServiceEntry, owner: str) -> dict[str, Json]:
        """Return whether a user has signed in, since when, and with which scopes."""
        tokens = await self._read(record_name(entry.key, SHARED if entry.config.shared else owner), Tokens)
        row: dict[str, Json] = {"entry": entry.name, "signed_in": tokens is not None, "shared": entry.config.shared}
        if tokens is None:
            return row
        since = datetime.fromtimestamp(tokens.since, tz=UTC).isoformat(timespec="seconds")
        return {**row, "since": since, "scopes": tokens.scopes}

    async def count(self, entry: ServiceEntry) -> int:
        """Return the number of users who have signed in."""
        return len(await self.store.names(f"tokens:{entry.key}:"))

    async def sign_out_of(self, entry: ServiceEntry, owner: str) -> bool:
        return await self.sign_out(record_name(entry.key, SHARED if entry.config.shared else owner))

    async def forget(self, name: str, tokens: Tokens) -> None:
        """Delete rejected tokens, unless the user has signed in again."""
        found = await self._read(name, Tokens)
        if found is not None and found.access_token == tokens.access_token:
            await self.store.delete(name)

    async def sign_out(self, name: str) -> bool:
        """Delete tokens and revoke them (RFC 7009). Succeeds even if the revocation fails."""
        tokens = _decoded(await self.store.delete(name), Tokens)
        if tokens is None:
            return False
        entry = self._entries.get(tokens.entry)
        if entry is not None:
            self._changed(entry)
            await self._revoke(entry, tokens)
        return True

    async def keep(self, keys: frozenset[str]) -> None:
        """Sign users out of removed entries."""
        if self._store is None:
            return
        for name in await self.store.names("tokens:"):
            if name.split(":")[1] not in keys:
                await self.sign_out(name)

    async def sweep(self) -> None:
        while True:
            await asyncio.sleep(_SWEEP_SECONDS)
            if self._store is not None:
                await self.sign_out_idle()

    async def sign_out_idle(self) -> None:
        """Sign out users whose tokens were not used for `idle`."""
        for name in await self.store.names("tokens:"):
            tokens = await self._read(name, Tokens)
            entry = None if tokens is None else self._entries.get(tokens.entry)
            if tokens is None or entry is None:
                continue
            if tokens.used_at + entry.config.idle.total_seconds() < self._clock():
                await self.sign_out(name)

    def is_over(self, tokens: Tokens, margin: float) -> bool:
        return tokens.expires_at is not None and tokens.expires_at - margin < self._clock()

    async def link(self, required: SignInRequiredError) -> str:
        """Create a link with which the caller can sign in.

        Raises:
            ExecutionError: The caller cannot sign in here.
        """
        if self._base_url is None and required.subject is not None and required.subject.key is not None:
            title = required.entry.title
            raise ExecutionError(
                f"{title} requires that you sign in. Run `mcp-gateway connections sign-in {title}` in a terminal, then "
                "call again"
            )
        return f"{self._base_url}{PAGES}/{await self.begin(required)}"

    async def begin(self, required: SignInRequiredError) -> str:
        """Create a sign-in, and return its secret.

        Raises:
            ExecutionError: The caller cannot sign in.
        """
        entry, subject = required.entry, required.subject
        if subject is None or subject.key is None:
            raise ExecutionError(
                f"{entry.title} requires that you sign in, and this server does not know who you are. The operator can "
                "set `auth`"
            )
        if entry.config.shared and not subject.is_operator:
            raise ExecutionError(f"An administrator must sign in to {entry.title} first (scope gateway:admin)")
        secret = secrets.token_urlsafe(32)
        pending = PendingSignIn(
            id=digest_of(secret),
            entry=entry.key,
            person=subject.key,
            owner=SHARED if entry.config.shared else subject.key,
            scopes=required.scopes,
            metadata_url=required.metadata_url,
            binds_tokens=required.binds_tokens,
            expires_at=self._clock() + LINK_SECONDS,
        )
        await self._save(pending)
        return secret

    async def pending(self, secret: str) -> PendingSignIn | None:
        return await self._read(f"pending:{digest_of(secret)}", PendingSignIn)

    async def wait(self, link: str) -> None:
        """Wait until the user of a link has signed in.

        Raises:
            ExecutionError: The user has not signed in, or the sign-in failed.
        """
        secret = link.rpartition("/")[2]
        while True:
            pending = await self.pending(secret)
            if pending is None:
                raise ExecutionError("The sign-in was not completed in time. Repeat the call to get a new link")
            if pending.problem:
                raise ExecutionError(f"The sign-in failed: {pending.problem}")
            if pending.is_done:
                return
            async with self._done:
                try:
                    # Poll, because another process can complete the sign-in.
                    async with asyncio.timeout(_POLL_SECONDS):
                        await self._done.wait()
                except TimeoutError:
                    continue

    async def start(self, pending: PendingSignIn, *, redirect_uri: str | None = None) -> tuple[str, str]:
        """Return the URL of the authorization page, and a cookie for the browser.

        `redirect_uri` belongs to a program on this machine. The default is the gateway's own page.

        Raises:
            ExecutionError: The link was already used, or the authorization server cannot be used.
        """
        entry = self._known(pending.entry)
        redirect_uri = redirect_uri or callback_url(entry, self._base_url)
        server = await self._discover(entry, pending.metadata_url)
        _check_server(entry, server)
        client = await self._client(entry, server, redirect_uri)
        scopes = _scopes(entry.config, pending.scopes, server)
        if not await self.store.claim(f"used:{pending.id}", expires=pending.expires_at):
            raise ExecutionError("This link has already been used. Repeat the call to get a new link")
        verifier, browser = secrets.token_urlsafe(48), secrets.token_urlsafe(32)
        state = f"{pending.id}.{secrets.token_urlsafe(32)}"
        resource = server.resource or (_canonical(entry.service_url) if entry.is_mcp else None)
        await self._save(
            replace(
                pending,
                state=state,
                verifier=verifier,
                browser=digest_of(browser),
                redirect_uri=redirect_uri,
                asked=scopes,
                server=server,
                client=client,
                resource=resource,
            )
        )
        query = {
            "response_type": "code",
            "client_id": entry.config.client_id if client is None else client.client_id,
            "redirect_uri": redirect_uri,
            "state": state,
            "code_challenge": challenge_of(verifier),
            "code_challenge_method": "S256",
            **({"scope": " ".join(scopes)} if scopes else {}),
            **offline_parameters(server, scopes),
            **({} if resource is None else {"resource": resource}),
        }
        separator = "&" if urlsplit(server.authorization_url).query else "?"
        return f"{server.authorization_url}{separator}{urlencode(query)}", browser

    async def returned(self, state: str, browser: str) -> PendingSignIn | None:
        """Return the sign-in of an authorization response, or None if it does not belong to this browser."""
        pending = await self._read(f"pending:{state.partition('.')[0]}", PendingSignIn)
        if pending is None or not pending.state or pending.is_done:
            return None
        is_own = hmac.compare_digest(pending.state.encode(), state.encode()) and hmac.compare_digest(
            pending.browser, digest_of(browser)
        )
        return pending if is_own else None

    def expects(self, pending: PendingSignIn, name: str) -> bool:
        """Return whether a callback is the one of the service that the user signs in to."""
        entry = self._entries.get(pending.entry)
        return entry is None or entry.name == name

    async def finish(self, pending: PendingSignIn, response: Mapping[str, str]) -> ServiceEntry:
        """Exchange the code of an authorization response for tokens, and store them.

        Raises:
            ExecutionError: The response is invalid, or the server issued no tokens.
        """
        entry, server = self._known(pending.entry), pending.server
        # RFC 6749 §4.1.2: a code can only be used once.
        if not await self.store.claim(f"code:{pending.id}", expires=pending.expires_at):
            raise ExecutionError("this response has already been used")
        assert server is not None  # noqa: S101 - `start` has set it
        try:
            check_response(response, server)
            tokens = await self._exchange(entry, pending, server, response["code"])
        except ExecutionError as error:
            await self._save(replace(pending, problem=str(error)))
            raise
        name = record_name(entry.key, pending.owner)
        await self._mask(name, tokens)
        await self._write(name, tokens, seconds=_kept_seconds(entry))
        await self._save(replace(pending, is_done=True, verifier="", state=""))
        log.info("user signed in to a service", entry=entry.name)
        self._changed(entry)
        return entry

    def client_document(self, entry: ServiceEntry, base_url: str) -> dict[str, Json]:
        """Return the client metadata document of an entry (draft-ietf-oauth-client-id-metadata-document)."""
        return {
            "client_id": f"{base_url}{CLIENT_DOCUMENTS}/{entry.title}.json",
            **_client_metadata(callback_url(entry, base_url), method="none"),
        }

    def entries(self, keys: frozenset[str]) -> list[ServiceEntry]:
        found = (self._entries.get(key) for key in keys)
        return sorted((entry for entry in found if entry is not None), key=lambda entry: entry.name)

    @property
    def store(self) -> SecretStore:
        if self._store is None:
            raise ExecutionError("Users cannot sign in here, because no state is kept")
        return self._store

    def _known(self, key: str) -> ServiceEntry:
        entry = self._entries.get(key)
        if entry is None:
            raise ExecutionError("The configuration has changed. Repeat the call to get a new link")
        return entry

    async def _discover(self, entry: ServiceEntry, metadata_url: str | None) -> ServerMetadata:
        sender = entry.endpoint.sender
        if entry.config.issuer is not None:
            server = await discover(entry.config.issuer, sender)
            return replace(server, resource=_canonical(entry.service_url) if entry.is_mcp else None)
        try:
            return await discover_of_service(entry.service_url, sender, named=metadata_url)
        except MissingMetadataError:
            if not entry.is_mcp or metadata_url is not None:
                raise
        # MCP 2025-03-26 basic/authorization: the server is also the authorization server, with or without metadata.
        origin = urlunsplit(urlsplit(entry.service_url)._replace(path="", query="", fragment=""))
        try:
            return await discover(origin, sender)
        except MissingMetadataError:
            return ServerMetadata(
                issuer=origin,
                authorization_url=f"{origin}/authorize",
                token_url=f"{origin}/token",
                registration_url=f"{origin}/register",
                challenge_methods=["S256"],
            )

    async def _client(self, entry: ServiceEntry, server: ServerMetadata, redirect_uri: str) -> RegisteredClient | None:
        if entry.config.client_id:
            if entry.config.client_secret is not None and entry.config.issuer is None:
                await self._check_issuer(entry, server)
            return None
        base_url = self._base_url or ""
        if server.reads_client_documents and base_url.startswith("https:"):
            return RegisteredClient(client_id=f"{base_url}{CLIENT_DOCUMENTS}/{entry.title}.json")
        # Never send the credentials of one issuer to another: records are stored by issuer.
        name = f"client:{digest_of(server.issuer or server.token_url, redirect_uri)}"
        known = await self._read(name, RegisteredClient)
        if known is not None:
            return known
        if server.registration_url is None:
            raise ExecutionError(
                f"{server.issuer} does not allow clients to register. Register the redirect URI {redirect_uri} there, "
                f"and set `client_id` of {entry.name}"
            )
        client, seconds = await self._registered(entry, server, server.registration_url, redirect_uri)
        await self._write(name, client, seconds=seconds)
        return client

    async def _check_issuer(self, entry: ServiceEntry, server: ServerMetadata) -> None:
        """Send the configured secret only to the authorization server that the service named first.

        MCP 2026-07-28 basic/authorization/client-registration: credentials belong to the issuer that issued them.
        """
        name, issuer = f"issuer:{entry.key}", server.issuer or server.token_url
        known = await self.store.read(name)
        if known is None:
            await self.store.write(name, issuer.encode(), expires=self._clock() + _FOREVER_SECONDS)
        elif known.decode() != issuer:
            raise ExecutionError(
                f"The gateway cannot sign in: {entry.service_url} now names the authorization server {issuer} "
                f"instead of {known.decode()}. If this is correct, set `issuer` of {entry.name}"
            )

    async def _registered(
        self, entry: ServiceEntry, server: ServerMetadata, url: str, redirect_uri: str
    ) -> tuple[RegisteredClient, float]:
        """Register the gateway (RFC 7591), and return the client and its lifetime in seconds."""
        method = next((each for each in _METHODS if each in server.auth_methods), _METHODS[0])
        body = orjson.dumps(_client_metadata(redirect_uri, method=method))
        headers = bound({"Content-Type": "application/json", "Accept": "application/json"})
        request = Request(method="POST", url=url_of(url), headers=headers, body=body)
        deadline = asyncio.get_running_loop().time() + REQUEST_SECONDS
        response = await entry.endpoint.sender.send(request, deadline=deadline)
        try:
            found = orjson.loads(response.body)
        except orjson.JSONDecodeError:
            found = {}
        client_id = found.get("client_id") if isinstance(found, dict) else None
        if response.status not in {200, 201} or not isinstance(client_id, str) or not client_id:
            said = str(found.get("error", "")) if isinstance(found, dict) else ""
            raise entry.endpoint.failure(f"{url} does not register clients: it returned {response.status} {said}")
        secret = found.get("client_secret")
        method = str(found.get("token_endpoint_auth_method") or method)
        client = RegisteredClient(
            client_id=client_id, secret=secret if isinstance(secret, str) and method != "none" else None, method=method
        )
        expires = found.get("client_secret_expires_at")
        # RFC 7591 §3.2.1: 0 means that the secret does not expire.
        seconds = expires - self._clock() if isinstance(expires, int) and expires > 0 else _FOREVER_SECONDS
        if client.secret is not None:
            await asyncio.to_thread(self._secrets.add, client.secret)
        return client, seconds

    async def _exchange(self, entry: ServiceEntry, pending: PendingSignIn, server: ServerMetadata, code: str) -> Tokens:
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": pending.redirect_uri,
            "code_verifier": pending.verifier,
            **({} if pending.resource is None else {"resource": pending.resource}),
        }
        # A service that does not support DPoP rejects bound tokens, even if its authorization server issues them.
        is_bound = pending.binds_tokens or server.binds_tokens
        now = self._clock()
        blank = Tokens(
            entry=entry.key,
            access_token="",
            expires_at=None,
            refresh_token=None,
            scopes=pending.asked,
            server=server,
            client=pending.client,
            resource=pending.resource,
            since=now,
            used_at=now,
            proof_key=new_key() if is_bound and ALGORITHM in server.dpop_algorithms else "",
        )
        return await self._asked(entry, blank, form, sent=[code, pending.verifier])

    async def _refresh(self, entry: ServiceEntry, name: str, stale: Tokens) -> Tokens | None:
        lease = f"lease:{digest_of(name)}"
        while not await self.store.claim(lease, expires=self._clock() + _LEASE_SECONDS):  # noqa: ASYNC110
            await asyncio.sleep(_POLL_SECONDS)
        try:
            # RFC 9700 §4.14.2: a server revokes all tokens of a user if a refresh token is used twice.
            tokens = await self._read(name, Tokens)
            if tokens is None or tokens.access_token != stale.access_token:
                return tokens
            if tokens.refresh_token is None:
                return None
            form = {
                "grant_type": "refresh_token",
                "refresh_token": tokens.refresh_token,
                **({} if tokens.resource is None else {"resource": tokens.resource}),
            }
            try:
                fresh = await self._asked(entry, tokens, form, sent=[tokens.refresh_token])
            except TokenRejectedError as error:
                if error.error not in _REVOKED:
                    raise
                await self.forget(name, tokens)
                return None
            if await self._replace(entry, name, tokens, fresh):
                return fresh
            await self._revoke(entry, fresh)
            return await self._read(name, Tokens)
        finally:
            await self.store.delete(lease)

    async def _asked(
        self, entry: ServiceEntry, before: Tokens, form: Mapping[str, str], *, sent: Sequence[str]
    ) -> Tokens:
        authentication = self._authentication(entry, before)
        response = await entry.endpoint.post(
            before.server, form, authentication, proof_key=before.proof_key, secrets=sent
        )
        token = read_token(response, host=host_of_endpoint(before.server), proof_key=before.proof_key)
        found = content_of(response)
        refresh_token, scope = found.get("refresh_token"), found.get("scope")
        return replace(
            before,
            access_token=token.value,
            expires_at=None if found.get("expires_in") is None else self._clock() + token.seconds,
            # RFC 6749 §6: without a new refresh token, the old one stays valid.
            refresh_token=refresh_token if isinstance(refresh_token, str) and refresh_token else before.refresh_token,
            scopes=scope.split() if isinstance(scope, str) else before.scopes,
            proof_key=token.proof_key,
        )

    def _authentication(self, entry: ServiceEntry, tokens: Tokens) -> ClientAuthentication:
        if tokens.client is not None:
            return tokens.client.authentication
        return entry.authentication or PublicClient(client_id=entry.config.client_id)

    async def _revoke(self, entry: ServiceEntry, tokens: Tokens) -> None:
        if tokens.server.revocation_url is None:
            return
        form = {"token": tokens.refresh_token or tokens.access_token}
        server = replace(tokens.server, token_url=tokens.server.revocation_url)
        try:
            await entry.endpoint.post(server, form, self._authentication(entry, tokens), is_revocation=True)
        except ExecutionError as error:
            log.warning("tokens not revoked", entry=entry.name, reason=str(error))

    async def _mask(self, name: str, tokens: Tokens) -> None:
        if self._masked.get(name) != tokens.access_token:
            self._masked.put(name, tokens.access_token)
            for secret in filter(None, (tokens.access_token, tokens.refresh_token)):
                await asyncio.to_thread(self._secrets.add, secret)

    async def _replace(self, entry: ServiceEntry, name: str, before: Tokens, after: Tokens) -> bool:
        """Update tokens. Return False if the user has signed out or signed in again."""
        await self._mask(name, after)
        expires = self._clock() + _kept_seconds(entry)
        while (content := await self.store.read(name)) is not None:
            found = _decoded(content, Tokens)
            if found is None or found.access_token != before.access_token:
                break
            newer = replace(after, used_at=max(found.used_at, after.used_at))
            if await self.store.replace(name, content, _encoded(newer), expires=expires):
                return True
        return False

    async def _save(self, pending: PendingSignIn) -> None:
        await self._write(f"pending:{pending.id}", pending, seconds=pending.expires_at - self._clock())
        if pending.is_done or pending.problem:
            async with self._done:
                self._done.notify_all()

    async def _read(self, name: str, kind: type[T]) -> T | None:
        return _decoded(await self.store.read(name), kind)

    async def _write(self, name: str, value: object, *, seconds: float) -> None:
        await self.store.write(name, _encoded(value), expires=self._clock() + seconds)

    def _changed(self, entry: ServiceEntry) -> None:
        if self._events is not None:
            self._events.publish(SignInsChanged(entry.name))


_encoded: Final = msgspec.json.Encoder().encode


def _decoded(content: bytes | None, kind: type[T]) -> T | None:
    try:
        return None if content is None else msgspec.json.decode(content, type=kind)
    except msgspec.DecodeError:  # Written by another version.
        return None


def _kept_seconds(entry: ServiceEntry) -> float:
    # One day longer than `idle`, so that `sweep` can revoke them.
    return entry.config.idle.total_seconds() + 86_400


_METHODS: Final = ("client_secret_basic", "client_secret_post", "none")


def record_name(entry: str, owner: str) -> str:
    return f"tokens:{entry}:{digest_of(owner)}"


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


def _check_server(entry: ServiceEntry, server: ServerMetadata) -> None:
    if not server.authorization_url or not is_trustworthy(server.authorization_url):
        raise ExecutionError(f"{server.issuer} has no authorization endpoint with an https URL")
    # MCP 2025-11-25 basic/authorization: without this member, the server does not support PKCE. Servers of other
    # services ignore unknown members.
    methods = server.challenge_methods
    if "S256" not in (methods or ()) and (methods is not None or entry.is_mcp):
        raise ExecutionError(f"{server.issuer} does not support PKCE with S256, so a code could be stolen")


def check_response(response: Mapping[str, str], server: ServerMetadata) -> None:
    """Check an authorization response.

    1. `iss` is exactly the expected issuer. It is required if the server announces it (RFC 9207 §2.4).
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
        raise ExecutionError("the response has no code")


def _scopes(config: AuthorizationCode, challenged: Sequence[str], server: ServerMetadata) -> list[str]:
    """Return the scopes of the configuration and the challenge. Default: all scopes of the service."""
    scopes = dict.fromkeys([*config.scopes, *challenged] or server.resource_scopes)
    if _OFFLINE in server.scopes and scopes:
        scopes[_OFFLINE] = None
    return list(scopes)


def offline_parameters(server: ServerMetadata, scopes: Sequence[str]) -> dict[str, str]:
    """Return the parameters without which a server issues no refresh token."""
    if server.issuer == _GOOGLE:  # https://developers.google.com/identity/protocols/oauth2/web-server
        return {"access_type": "offline", "prompt": "consent"}
    # OpenID Connect Core §11: without consent, the server ignores the scope.
    return {"prompt": "consent"} if _OFFLINE in scopes else {}


def _canonical(service_url: str) -> str:
    """Return the resource identifier of an MCP server (RFC 8707, MCP "Canonical Server URI")."""
    return urlunsplit(urlsplit(service_url)._replace(query="", fragment=""))


def challenge_of(verifier: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).decode().rstrip("=")


def digest_of(*parts: str) -> str:
    # Prefix each part with its length, so that the concatenation is unambiguous.
    return hashlib.sha256("".join(f"{len(part)}:{part}" for part in parts).encode()).hexdigest()[:32]
