"""Authenticates requests by API key or access token, and checks identities again after a reload.

Without the section `auth` every request is anonymous and holds every scope. The listeners make sure that such a daemon
cannot be reached from elsewhere (see `reload.exposure`).
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from gateway.access.access_tokens import AccessTokens, TokenRules, normal_audience
from gateway.access.api_keys import REALM, ApiKeys, check_api_keys
from gateway.access.auth_error import AuthError, invalid_token, missing_credentials
from gateway.access.credentials import Credential, read_credential
from gateway.access.identity import ANONYMOUS, Identity
from gateway.access.issuer import Fetch
from gateway.access.jose import is_installed, read_issuer
from gateway.access.jwks import JwksCache
from gateway.background_tasks import BackgroundTasks
from gateway.config.diagnostics.problems import Problems
from gateway.config.loader import LoadedConfig
from gateway.config.models.address import Address
from gateway.config.models.auth import Auth, OAuth
from gateway.distribution import install_command
from gateway.json_types import JsonObject

OnDenied = Callable[[AuthError, str, str], None]
"""Takes an authentication error, the client's address, and the requested path."""

_OFFLINE_ACCESS: Final = "offline_access"


class Authenticator:
    """Holds the API keys and the issuers of the section `auth`. Its methods raise nothing but CancelledError."""

    def __init__(self, fetch: Fetch, *, on_denied: OnDenied | None = None) -> None:
        """Require nothing until `configure` is called; `fetch` gets the documents that issuers publish."""
        self._on_denied: Final = on_denied
        self._fetch: Final = fetch
        self._auth: Auth | None = None
        self._keys = ApiKeys({})
        self._tokens: Mapping[str, AccessTokens] = {}
        """By issuer."""
        self._signing_keys: Final[dict[tuple[str, str | None], JwksCache]] = {}
        """By issuer and `jwks_url`."""
        self._own_names: frozenset[str] = frozenset()
        self._views: tuple[str, ...] = ()
        # With a zero, so that the metric is there before the first denial.
        self.denied: Final = Counter({401: 0})
        """Denied requests, by the status of the response."""
        self._closing: Final = BackgroundTasks()

    @property
    def is_open(self) -> bool:
        """Whether requests need no credential."""
        return self._auth is None

    @property
    def oauth(self) -> OAuth | None:
        return None if self._auth is None else self._auth.oauth

    @property
    def takes_keys(self) -> bool:
        """Whether there are API keys."""
        return self._auth is not None and bool(self._auth.api_keys)

    def configure(self, auth: Auth | None, *, views: Iterable[str] = ()) -> None:
        """Use this section from now on, for these views beside the whole. The keys of an issuer that stays are kept."""
        self._auth = auth
        self._views = tuple(views)
        self._keys = ApiKeys({} if auth is None else auth.api_keys)
        self._configure_issuers()

    def set_audiences(self, names: Iterable[str]) -> None:
        """Accept tokens whose audience is one of these URLs, where the file names no audience.

        A URL with the name of a view behind it is an audience too, for that view alone.
        """
        self._own_names = frozenset(map(normal_audience, names))
        self._configure_issuers()

    async def identify(self, *, authorization: Sequence[str], api_key: Sequence[str]) -> Identity | AuthError:
        """Return the identity of a request's sender, by the values of its two header fields.

        1. without a section `auth` the request is anonymous, whatever it carries
        2. there is one well-formed credential: 400, 401
        3. it is a known API key or a valid access token: 401, and see `AccessTokens.identify`
        """
        if self._auth is None:
            return ANONYMOUS
        found = await self._identify(authorization, api_key)
        if isinstance(found, AuthError):
            self.denied[found.status] += 1
        return found

    async def _identify(self, authorization: Sequence[str], api_key: Sequence[str]) -> Identity | AuthError:
        credential = read_credential(authorization=authorization, api_key=api_key)
        if not isinstance(credential, Credential):
            return credential or missing_credentials()
        # Keys first: that costs a digest, where a token may cost a signature check and a fetch.
        holder = self._keys.find(credential.secret)
        if holder is not None:
            return holder
        if not self._tokens or not credential.is_bearer:
            return invalid_token("The key is not known here")
        tokens = next(iter(self._tokens.values()))
        if len(self._tokens) > 1:
            tokens = self._tokens.get(read_issuer(credential.secret) or "", tokens)
        return await tokens.identify(credential.secret)

    def record_denial(self, auth_error: AuthError, *, address: str, path: str) -> None:
        """Report a denied request, for the audit log."""
        if self._on_denied is not None:
            self._on_denied(auth_error, address, path)

    def revalidate(self, identity: Identity) -> Identity | None:
        """Return the identity that the same credential has now; None if it is no longer valid."""
        if self._auth is None:
            # Nobody can prove any more whose session it was that a credential has opened.
            return identity if identity == ANONYMOUS else None
        if identity.realm == REALM:
            return self._keys.revalidate(identity)
        tokens = self._tokens.get(identity.realm)
        return identity if tokens is not None and tokens.rules.accepts(identity) else None

    def status(self) -> JsonObject | None:
        """Return the part of `/-/status` about authentication; None without a section `auth`."""
        if self._auth is None:
            return None
        issuers, keys = self._auth.issuers, self._signing_keys.values()
        return {
            "api_keys": list(self._auth.api_keys),
            "issuer": ", ".join(issuers) or None,
            "signing_keys": sum(map(len, keys)),
            "signing_keys_error": "; ".join(each.error for each in keys if each.error) or None,
        }

    async def close(self) -> None:
        for keys in self._signing_keys.values():
            await keys.close()
        await self._closing.cancel()

    def _configure_issuers(self) -> None:
        oauth = self.oauth
        sources = {} if oauth is None else {issuer: (issuer, oauth.jwks_url) for issuer in oauth.issuer}
        for gone in self._signing_keys.keys() - sources.values():
            # A reload does not wait for the fetch from an issuer that it has just replaced.
            self._closing.begin(self._signing_keys.pop(gone).close(), name="issuer left")
        self._tokens = {} if oauth is None else {each: self._tokens_of(oauth, each, sources[each]) for each in sources}

    def _tokens_of(self, oauth: OAuth, issuer: str, source: tuple[str, str | None]) -> AccessTokens:
        if source not in self._signing_keys:
            self._signing_keys[source] = JwksCache(issuer=issuer, keys_url=oauth.jwks_url, fetch=self._fetch)
        keys = self._signing_keys[source]
        # The names are known once listeners are open: before that nobody can show a token.
        if self._own_names:
            keys.refresh_soon()
        own = self._own_names if oauth.audience is None else frozenset()
        rules = TokenRules(
            issuer=issuer,
            audiences=own if oauth.audience is None else frozenset(map(normal_audience, oauth.audience)),
            views={normal_audience(f"{url}/{view}"): view for url in own for view in self._views},
            required_scopes=oauth.required_scopes,
            takes_client_id=oauth.audience_claim == "client_id",
        )
        return AccessTokens(rules, keys)


def access_token_of(identity: Identity, authorization: Sequence[str]) -> Credential | None:
    """Return the access token that a request was let in with; None where it was let in with something else."""
    if identity.principal is None or identity.realm == REALM:
        return None
    credential = read_credential(authorization=authorization, api_key=())
    return credential if isinstance(credential, Credential) else None


def check_auth(loaded: LoadedConfig, problems: Problems) -> None:
    """Report problems of the section `auth` that its models cannot see."""
    auth, problems = loaded.document.auth, problems.at("auth")
    if auth is None:
        return
    check_api_keys(auth.api_keys, problems.at("api_keys"))
    if auth.oauth is None:
        return
    if not is_installed():
        message = f"needs packages that are not installed: {install_command('auth')}"
        problems.at("oauth").error(message)
    listen = loaded.document.listen
    is_elsewhere = listen.trusted_proxies or listen.allowed_hosts or not Address.parse(listen.http).is_loopback
    if auth.oauth.audience is None and listen.public_url is None and is_elsewhere:
        problems.at("oauth").warning(
            f"tokens must be meant for this server, and clients do not know it as {listen.http}: "
            "set `listen.public_url`, or `audience` here"
        )
    for key in ("required_scopes", "scopes_supported"):
        if _OFFLINE_ACCESS in getattr(auth.oauth, key):
            # MCP 2026-07-28 basic/authorization, "Refresh Tokens".
            message = f"`{_OFFLINE_ACCESS}` is between clients and the issuer; a server should not ask for it"
            problems.at("oauth", key).warning(message)
