"""Who sends a request, by what it presents. Follows reloads; what was let in before can be looked at again.

Without the section `auth` everybody is let in, and holds every scope: that such a daemon is not reached by strangers is
the business of whoever opens its listener.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from gateway.access.access_tokens import AccessTokens, TokenRules, normal_audience
from gateway.access.api_keys import REALM, ApiKeys, check_api_keys
from gateway.access.credentials import Credential, read_credential
from gateway.access.denial import Denial, invalid, missing
from gateway.access.identity import ANYBODY, Identity
from gateway.access.issuer import Fetch
from gateway.access.jose import is_installed
from gateway.access.signing_keys import SigningKeys
from gateway.config.address import Address
from gateway.config.auth import Auth, OAuth
from gateway.config.loader import LoadedConfig
from gateway.config.problems import Problems
from gateway.json_types import JsonObject

OnDenied = Callable[[Denial, str, str], None]
"""Takes a denial, the client's address, and the path that was asked for."""

_OFFLINE_ACCESS: Final = "offline_access"


class Authenticator:
    """Knows keys and issuers. Its methods raise nothing but CancelledError."""

    def __init__(self, fetch: Fetch, *, on_denied: OnDenied | None = None) -> None:
        """Let everybody in, until `adopt` says otherwise; `fetch` gets what issuers publish."""
        self._on_denied: Final = on_denied
        self._fetch: Final = fetch
        self._auth: Auth | None = None
        self._keys = ApiKeys({})
        self._tokens: AccessTokens | None = None
        self._signing_keys: SigningKeys | None = None
        self._signing_keys_of: tuple[str, str | None] | None = None
        self._own_names: frozenset[str] = frozenset()
        self.denied: Final = Counter({401: 0})
        """How often a request was not let in, by the status that it was answered with."""
        self._closing: Final[set[asyncio.Task[None]]] = set()

    @property
    def is_open(self) -> bool:
        """Whether nobody has to authenticate."""
        return self._auth is None

    @property
    def oauth(self) -> OAuth | None:
        return None if self._auth is None else self._auth.oauth

    def adopt(self, auth: Auth | None) -> None:
        """Go by this section from now on. What is known of an issuer that stays is kept."""
        self._auth = auth
        self._keys = ApiKeys({} if auth is None else auth.api_keys)
        self._adopt_issuer(None if auth is None else auth.oauth)

    def answer_to(self, names: Iterable[str]) -> None:
        """Expect requests, with tokens that are meant for one of these URLs where the file names no audience."""
        self._own_names = frozenset(map(normal_audience, names))
        self._adopt_issuer(self.oauth)

    async def identify(self, *, authorization: Sequence[str], api_key: Sequence[str]) -> Identity | Denial:
        """Say who sends a request, by the values of its two header fields.

        1. nobody has to say who it is: anybody is let in, whatever was sent
        2. there is a credential of a form that can be: 400, 401
        3. it is a key of ours, or a good access token: 401, and see `AccessTokens.identify`
        """
        if self._auth is None:
            return ANYBODY
        found = await self._identify(authorization, api_key)
        if isinstance(found, Denial):
            self.denied[found.status] += 1
        return found

    async def _identify(self, authorization: Sequence[str], api_key: Sequence[str]) -> Identity | Denial:
        credential = read_credential(authorization=authorization, api_key=api_key)
        if not isinstance(credential, Credential):
            return credential or missing()
        holder = self._keys.find(credential.secret)
        if holder is not None:
            return holder
        if self._tokens is None or not credential.is_bearer:
            return invalid("The key is not known here")
        return await self._tokens.identify(credential.secret)

    def tell(self, denial: Denial, *, address: str, path: str) -> None:
        """Say who was not let in, to whoever keeps a record of that."""
        if self._on_denied is not None:
            self._on_denied(denial, address, path)

    def renewed(self, identity: Identity) -> Identity | None:
        """Whom the same credential would be let in as now; None if it would not."""
        if self._auth is None:
            return identity if identity == ANYBODY else None
        if identity.realm == REALM:
            return self._keys.renewed(identity)
        is_let_in = self._tokens is not None and self._tokens.rules.let_in(identity)
        return identity if is_let_in else None

    def status(self) -> JsonObject | None:
        """What an operator should know; None where nobody has to authenticate."""
        if self._auth is None:
            return None
        keys = self._signing_keys
        return {
            "api_keys": list(self._auth.api_keys),
            "issuer": None if self.oauth is None else self.oauth.issuer,
            "signing_keys": 0 if keys is None else len(keys),
            "signing_keys_error": None if keys is None else keys.error,
        }

    async def close(self) -> None:
        if self._signing_keys is not None:
            await self._signing_keys.close()
        for task in self._closing:
            task.cancel()
        await asyncio.gather(*self._closing, return_exceptions=True)

    def _adopt_issuer(self, oauth: OAuth | None) -> None:
        source = None if oauth is None else (oauth.issuer, oauth.jwks_url)
        if source != self._signing_keys_of:
            self._leave_issuer()
            self._signing_keys_of = source
            if oauth is not None:
                self._signing_keys = SigningKeys(issuer=oauth.issuer, keys_url=oauth.jwks_url, fetch=self._fetch)
        if self._signing_keys is not None and self._own_names:
            self._signing_keys.begin()
        if oauth is None or self._signing_keys is None:
            self._tokens = None
            return
        audiences = self._own_names if oauth.audience is None else frozenset([normal_audience(oauth.audience)])
        rules = TokenRules(issuer=oauth.issuer, audiences=audiences, required_scopes=oauth.required_scopes)
        self._tokens = AccessTokens(rules, self._signing_keys)

    def _leave_issuer(self) -> None:
        if self._signing_keys is not None:
            closing = asyncio.get_running_loop().create_task(self._signing_keys.close(), name="issuer left")
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)
        self._signing_keys = None


def check_auth(loaded: LoadedConfig, problems: Problems) -> None:
    """Report what is wrong with the section and its models cannot see."""
    auth, problems = loaded.document.auth, problems.at("auth")
    if auth is None:
        return
    check_api_keys(auth.api_keys, problems.at("api_keys"))
    if auth.oauth is None:
        return
    if not is_installed():
        message = "needs packages that are not installed: pip install 'mcp-gateway-daemon[auth]'"
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
