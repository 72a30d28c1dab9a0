"""Signs users in to services, and stores the users' tokens.

Threats:

- A user forwards a link: the page only accepts the caller for whom the link was created.
- An authorization response is forged: its `state` is bound to the browser that opened the link.
- Tokens are used for another service, user or configuration: the name of each record contains digests of all three.
"""

import asyncio
import hmac
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final, TypeVar

import msgspec
import structlog
from msgspec.structs import replace

from gateway.access.identity import Subject
from gateway.bounded_map import BoundedMap
from gateway.config.secrets.redactor import ObtainedSecrets
from gateway.deadline import DeadlineExceededError
from gateway.errors import ExecutionError
from gateway.events import Events, SignInsChanged
from gateway.json_types import Json
from gateway.net.authorization_code import (
    CLIENT_DOCUMENTS,
    PAGES,
    ServiceEntry,
    Tokens,
    authorization_url,
    check_response,
    digest_of,
    offline_parameters,
)
from gateway.net.outbound_tokens import SharedFetches
from gateway.net.server_metadata import ServerMetadata, check_pinned
from gateway.net.token_client import OAuthClient, TokenRejectedError
from gateway.state.encrypted_store import EncryptedStore

log: Final = structlog.get_logger(__name__)

T = TypeVar("T")

LINK_SECONDS: Final = 600.0
"""How long a sign-in link is valid, and how long a call waits for the user to sign in."""
SHARED: Final = "shared"
_LEASE_SECONDS: Final = 40.0
_REFRESH_SECONDS: Final = 30.0
"""The timeout of a refresh. It ends before the lease, so that no two processes send the same refresh token."""
_POLL_SECONDS: Final = 0.5
_TOUCH_SECONDS: Final = 3600.0
_SWEEP_SECONDS: Final = 3600.0
_FOREVER_SECONDS: Final = 10 * 365 * 86_400.0
_MAX_ENTRIES: Final = 1000
_REVOKED: Final = frozenset({"invalid_grant", "invalid_client", "unauthorized_client"})
"""Errors after which a refresh token cannot be used again."""


class PendingSignIn(msgspec.Struct, frozen=True, kw_only=True):
    """A sign-in, from the creation of its link until tokens are issued."""

    id: str
    """Digest of the link's secret."""
    entry: str
    person: str
    """The caller who must open the link (`Subject.key`)."""
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
    tokens: Tokens | None = None
    """The server, client and scopes for the token request, or None until the link is opened."""
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
    """Signs users in to services, and stores the users' tokens. Configuration reloads keep this object."""

    def __init__(self, *, secrets: ObtainedSecrets | None = None, clock: Callable[[], float] = time.time) -> None:
        self._clock: Final = clock
        self._secrets: Final = secrets or ObtainedSecrets()
        self._masked: Final[BoundedMap[str, str]] = BoundedMap(_MAX_ENTRIES)
        """The access tokens that are masked in logs, by record name."""
        self._store: EncryptedStore | None = None
        self._events: Events | None = None
        self.base_url: str | None = None
        """The base URL of the sign-in pages, or None if no pages are served."""
        self._entries: Final[BoundedMap[str, ServiceEntry]] = BoundedMap(_MAX_ENTRIES)
        self._refreshes: Final[SharedFetches[Tokens | None]] = SharedFetches()

    def open(self, store: EncryptedStore, events: Events) -> None:
        self._store, self._events = store, events

    def listen_at(self, base_url: str) -> None:
        self.base_url = base_url

    async def close(self) -> None:
        await self._refreshes.close()

    def add(self, entry: ServiceEntry) -> None:
        """Register a configured service, so that `entry` can return the service for its key."""
        self._entries.put(entry.key, entry)

    def entry(self, key: str) -> ServiceEntry | None:
        return self._entries.get(key)

    async def tokens(
        self, entry: ServiceEntry, owner: str | None, *, is_use: bool = False
    ) -> tuple[str, Tokens | None]:
        """Return the name of the record with the tokens of `owner`, and these tokens. None means any signed-in user.

        `is_use` restarts the `idle` time, after which unused tokens are revoked.
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
        """Refresh tokens, and return the new ones. Concurrent callers and other processes share one refresh.

        Return None if the user has to sign in again. If the server cannot be reached, raise ExecutionError and keep the
        tokens.
        """

        async def fetch() -> tuple[Tokens | None, float]:
            return await self._refresh(entry, name, stale), 0.0

        # The key contains the stale token, so that a running refresh of an older token is not reused.
        return await self._refreshes.get(digest_of(name, stale.access_token).encode(), fetch)

    async def described(self, entry: ServiceEntry, owner: str) -> dict[str, Json]:
        """Return whether a user has signed in, since when, and with which scopes."""
        tokens = await self._read(record_name(entry.key, SHARED if entry.config.shared else owner), Tokens)
        row: dict[str, Json] = {"entry": entry.name, "signed_in": tokens is not None, "shared": entry.config.shared}
        if tokens is None:
            return row
        since = datetime.fromtimestamp(tokens.since, tz=UTC).isoformat(timespec="seconds")
        return {**row, "since": since, "scopes": tokens.scopes}

    async def count(self, entry: ServiceEntry) -> int:
        """Return the number of users who are signed in to a service."""
        return len(await self.store.names(f"tokens:{entry.key}:"))

    async def sign_out_of(self, entry: ServiceEntry, owner: str) -> None:
        await self.sign_out(record_name(entry.key, SHARED if entry.config.shared else owner))

    async def forget(self, name: str, tokens: Tokens) -> None:
        """Delete rejected tokens, unless the user has signed in again."""
        found = await self._read(name, Tokens)
        if found is not None and found.access_token == tokens.access_token:
            await self.store.delete(name)

    async def sign_out(self, name: str) -> None:
        """Delete the record `name`, and revoke the tokens in it (RFC 7009)."""
        # If the response to a deletion in Redis is lost, the retry finds no record. Therefore, read the record first.
        found = await self.store.read(name)
        if found is None:  # also for a record of a gateway with another key
            return
        tokens = _decoded(await self.store.delete(name) or found, Tokens)
        entry = None if tokens is None else self._entries.get(tokens.entry)
        if tokens is None or entry is None:
            return
        # Several concurrent sign-outs can find the record, but only one revokes the tokens.
        mark = f"revoked:{digest_of(tokens.access_token, str(tokens.since))}"
        if await self.store.claim(mark, expires=self._clock() + _LEASE_SECONDS):
            self._changed(entry)
            await entry.revoke(tokens)

    async def keep(self, keys: frozenset[str]) -> None:
        """Sign users out of all services except those whose key is in `keys`."""
        for name in await self.store.names("tokens:"):
            if name.split(":")[1] not in keys:
                await self.sign_out(name)

    async def sweep(self) -> None:
        while True:
            await asyncio.sleep(_SWEEP_SECONDS)
            if self._store is not None:
                await self.sign_out_idle()

    async def sign_out_idle(self) -> None:
        """Sign out users whose tokens have been unused for longer than `idle`."""
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
        """Return a link for signing in. Raise ExecutionError if the caller must sign in another way."""
        if self.base_url is None and required.subject is not None and required.subject.key is not None:
            title = required.entry.title
            raise ExecutionError(
                f"{title} requires that you sign in. Run `mcp-gateway connections sign-in {title}` in a terminal, then "
                "call again"
            )
        return f"{self.base_url}{PAGES}/{await self.begin(required)}"

    async def begin(self, required: SignInRequiredError) -> str:
        """Create a sign-in, and return the secret part of its link. Raise ExecutionError if this is not allowed."""
        entry, subject = required.entry, required.subject
        if subject is None or subject.key is None:
            raise entry.unknown_user()
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
        """Wait until the user of a link has signed in. Raise ExecutionError if the sign-in fails or times out."""
        secret = link.rpartition("/")[2]
        while True:
            pending = await self.pending(secret)
            if pending is None:
                raise ExecutionError("The sign-in was not completed in time. Repeat the call to get a new link")
            if pending.problem:
                raise ExecutionError(f"The sign-in failed: {pending.problem}")
            if pending.is_done:
                return
            await asyncio.sleep(_POLL_SECONDS)  # Another process can complete the sign-in.

    async def start(self, pending: PendingSignIn, *, redirect_uri: str | None = None) -> tuple[str, str]:
        """Start a sign-in. Return the URL of the authorization page, and a cookie for the browser.

        Each link can only be used once. `redirect_uri` defaults to the gateway's callback page.
        """
        entry = self._known(pending.entry)
        redirect_uri = redirect_uri or entry.callback_url(self.base_url)
        server = await entry.find_server(pending.metadata_url)
        server = replace(server, binds_tokens=server.binds_tokens or pending.binds_tokens)
        client = await self._client(entry, server, redirect_uri)
        if not await self.store.claim(f"used:{pending.id}", expires=pending.expires_at):
            raise ExecutionError("This link has already been used. Repeat the call to get a new link")
        tokens = Tokens(entry=entry.key, scopes=entry.scopes(pending.scopes, server), server=server, client=client)
        verifier, browser = secrets.token_urlsafe(48), secrets.token_urlsafe(32)
        state = f"{pending.id}.{secrets.token_urlsafe(32)}"
        opened = replace(
            pending,
            state=state,
            verifier=verifier,
            browser=digest_of(browser),
            redirect_uri=redirect_uri,
            tokens=tokens,
        )
        await self._save(opened)
        url = authorization_url(
            server,
            client_id=entry.config.client_id if client is None else client.client_id,
            redirect_uri=redirect_uri,
            scopes=tokens.scopes,
            state=state,
            verifier=verifier,
            **offline_parameters(server, tokens.scopes),
            **({} if server.resource is None else {"resource": server.resource}),
        )
        return url, browser

    async def returned(self, state: str, browser: str, *, name: str) -> PendingSignIn | None:
        """Return the pending sign-in for an authorization response.

        Return None if the sign-in is unknown or finished, was started in another browser, or is for another service.
        `name` is the name of the service in the redirect URI. Each service has a separate redirect URI, so an
        authorization code is never sent to the wrong server (RFC 9700 §4.4.2).
        """
        pending = await self._read(f"pending:{state.partition('.')[0]}", PendingSignIn)
        if pending is None or not pending.state or pending.is_done:
            return None
        entry = self._entries.get(pending.entry)
        is_own = hmac.compare_digest(pending.state.encode(), state.encode()) and hmac.compare_digest(
            pending.browser, digest_of(browser)
        )
        return pending if is_own and (entry is None or entry.name == name) else None

    async def finish(self, pending: PendingSignIn, response: Mapping[str, str]) -> ServiceEntry:
        """Exchange the code of an authorization response for tokens, and store them."""
        entry, wanted = self._known(pending.entry), pending.tokens
        # RFC 6749 §4.1.2: a code can only be used once.
        if not await self.store.claim(f"code:{pending.id}", expires=pending.expires_at):
            raise ExecutionError("this response has already been used")
        assert wanted is not None  # noqa: S101 - `start` has set it
        try:
            check_response(response, wanted.server)
            tokens = await entry.exchange(
                wanted,
                response["code"],
                redirect_uri=pending.redirect_uri,
                verifier=pending.verifier,
                now=self._clock(),
            )
        except ExecutionError as error:
            await self._save(replace(pending, problem=str(error)))
            raise
        name = record_name(entry.key, pending.owner)
        await self._mask(name, tokens)
        await self._write(name, tokens, seconds=entry.kept_seconds)
        await self._save(replace(pending, is_done=True, verifier="", state=""))
        log.info("user signed in to a service", entry=entry.name)
        self._changed(entry)
        return entry

    def entries(self, keys: frozenset[str]) -> list[ServiceEntry]:
        found = (self._entries.get(key) for key in keys)
        return sorted((entry for entry in found if entry is not None), key=lambda entry: entry.name)

    @property
    def store(self) -> EncryptedStore:
        if self._store is None:
            raise ExecutionError("Users cannot sign in here, because no state is kept")
        return self._store

    def _known(self, key: str) -> ServiceEntry:
        entry = self._entries.get(key)
        if entry is None:
            raise ExecutionError("The configuration has changed. Repeat the call to get a new link")
        return entry

    async def _client(self, entry: ServiceEntry, server: ServerMetadata, redirect_uri: str) -> OAuthClient | None:
        if entry.config.client_id:
            if entry.config.client_secret is not None and entry.config.issuer is None:
                await self._check_issuer(entry, server)
            return None
        base_url = self.base_url or ""
        if server.reads_client_documents and base_url.startswith("https:"):
            return OAuthClient(client_id=f"{base_url}{CLIENT_DOCUMENTS}/{entry.title}.json")
        # Never send the credentials of one issuer to another: records are stored by issuer.
        name = f"client:{digest_of(server.issuer or server.token_url, redirect_uri)}"
        if (known := await self._read(name, OAuthClient)) is not None:
            return known
        client, expires_at = await entry.register(server, redirect_uri)
        if client.secret is not None:
            await asyncio.to_thread(self._secrets.add, client.secret)
        await self._write(name, client, seconds=_FOREVER_SECONDS if expires_at is None else expires_at - self._clock())
        return client

    async def _check_issuer(self, entry: ServiceEntry, server: ServerMetadata) -> None:
        name, issuer = f"issuer:{entry.key}", server.issuer or server.token_url
        known = await self.store.read(name)
        if known is None:
            await self.store.write(name, issuer.encode(), expires=self._clock() + _FOREVER_SECONDS)
        else:
            check_pinned(known.decode(), issuer, service_url=entry.service_url)

    async def _refresh(self, entry: ServiceEntry, name: str, stale: Tokens) -> Tokens | None:
        lease = f"lease:{digest_of(name)}"
        while not await self.store.claim(lease, expires=(expires := self._clock() + _LEASE_SECONDS)):  # noqa: ASYNC110
            await asyncio.sleep(_POLL_SECONDS)
        try:
            # RFC 9700 §4.14.2: a server revokes all tokens of a user if a refresh token is used twice.
            tokens = await self._read(name, Tokens)
            if tokens is None or tokens.access_token != stale.access_token:
                return tokens
            if tokens.refresh_token is None:
                return None
            try:
                async with asyncio.timeout(_REFRESH_SECONDS):
                    fresh = await entry.refresh(tokens, tokens.refresh_token, now=self._clock())
            except TimeoutError as error:
                raise DeadlineExceededError("Signing in", _REFRESH_SECONDS) from error
            except TokenRejectedError as error:
                if error.error not in _REVOKED:
                    raise
                await self.forget(name, tokens)
                return None
            if await self._replace(entry, name, tokens, fresh):
                return fresh
            await entry.revoke(fresh)
            return await self._read(name, Tokens)
        finally:
            # An expired lease can belong to another process.
            if self._clock() < expires:
                await self.store.delete(lease)

    async def _mask(self, name: str, tokens: Tokens) -> None:
        if self._masked.get(name) != tokens.access_token:
            self._masked.put(name, tokens.access_token)
            for secret in filter(None, (tokens.access_token, tokens.refresh_token)):
                await asyncio.to_thread(self._secrets.add, secret)

    async def _replace(self, entry: ServiceEntry, name: str, before: Tokens, after: Tokens) -> bool:
        await self._mask(name, after)
        expires = self._clock() + entry.kept_seconds
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
    except msgspec.DecodeError:  # Another version has written the record.
        return None


def record_name(entry: str, owner: str) -> str:
    return f"tokens:{entry}:{digest_of(owner)}"
