"""Authenticates requests by API key or access token.

Without `auth`, all requests are anonymous and have all scopes, and `reload.exposure` allows only loopback addresses.

Threat: timing attacks. Digests of API keys are compared in constant time.
"""

import hashlib
import hmac
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

import jmespath
from jmespath.exceptions import JMESPathError
from msgspec.structs import replace

from gateway.access.access_tokens import AccessTokens, normal_audience
from gateway.access.auth_error import AuthError, invalid_request, invalid_token, missing_credentials
from gateway.access.dpop import ProofRequest, ProofVerifier, thumbprint_of
from gateway.access.identity import ANONYMOUS, API_KEY_REALM, Credential, Identity
from gateway.access.introspection import Introspector, Post
from gateway.access.issuer import Fetch
from gateway.access.jose import FOREIGN_ISSUER, TokenError, is_installed, is_signed_token, read_header, read_issuer
from gateway.access.jwks import JwksCache
from gateway.background_tasks import BackgroundTasks
from gateway.config.diagnostics.problems import Problems
from gateway.config.loader import LoadedConfig
from gateway.config.models.address import Address
from gateway.config.models.auth import MIN_KEY_LENGTH, ApiKey, Auth, OAuth
from gateway.distribution import install_command
from gateway.json_types import JsonObject
from gateway.state.used_request_states import UsedStates

OnDenied = Callable[[AuthError, str, str], None]
"""Called with an error, the address of the client and the requested path."""

_OFFLINE_ACCESS: Final = "offline_access"
_VISIBLE: Final = re.compile(r"[\x21-\x7e]+")
"""API keys can contain any visible ASCII character. RFC 6750 §2.1 allows fewer characters in tokens."""
_BEARER: Final = "bearer"
_DPOP: Final = "dpop"
_SHOWN_DIGITS: Final = 16


class ApiKeys:
    def __init__(self, keys: Mapping[str, ApiKey]) -> None:
        self._holders: Final = tuple(
            (bytes.fromhex(digest), _holder_of(name, key, digest))
            for name, key in keys.items()
            for digest in digests(key)
        )

    def find(self, secret: str) -> Identity | None:
        given = hashlib.sha256(secret.encode()).digest()
        holder = None
        for digest, identity in self._holders:  # no early exit, which would reveal the position
            if hmac.compare_digest(digest, given):
                holder = identity
        return holder

    def revalidate(self, identity: Identity) -> Identity | None:
        """Return the current identity for an API key, or None if the key was removed or renamed."""
        same = (identity.subject_key, identity.credential)
        return next((holder for _, holder in self._holders if (holder.subject_key, holder.credential) == same), None)


def digests(key: ApiKey) -> Iterator[str]:
    yield from (hashlib.sha256(secret.encode()).hexdigest() for secret in key.secret)
    yield from key.sha256


def _holder_of(name: str, key: ApiKey, digest: str) -> Identity:
    return Identity(
        principal=name, realm=API_KEY_REALM, scopes=frozenset(key.scopes), credential=digest[:_SHOWN_DIGITS]
    )


class Authenticator:
    """Authenticates requests with the API keys and issuers of `auth`. Methods return errors instead of raising them."""

    def __init__(
        self,
        fetch: Fetch,
        *,
        post: Post,
        key: bytes,
        used_proofs: UsedStates | None = None,
        on_denied: OnDenied = lambda _error, _address, _path: None,
    ) -> None:
        """Accept all requests until `configure` is called.

        `fetch` and `post` send requests to issuers. `key` signs DPoP nonces, so replicas with the same key accept each
        other's nonces.
        """
        self._post: Final = post
        self._proofs: Final = ProofVerifier(key, used=UsedStates() if used_proofs is None else used_proofs)
        self.record_denial: Final = on_denied
        self._fetch: Final = fetch
        self._auth: Auth | None = None
        self._keys = ApiKeys({})
        self._tokens: Mapping[str, AccessTokens] = {}
        self._signing_keys: Final[dict[tuple[str, str | None], JwksCache]] = {}
        """The signing keys, by issuer and `jwks_url`."""
        self._own_names: frozenset[str] = frozenset()
        self._views: tuple[str, ...] = ()
        # Start with a zero, so that the metric exists before the first denied request.
        self.denied: Final = Counter({401: 0})
        self._closing: Final = BackgroundTasks()

    @property
    def is_open(self) -> bool:
        return self._auth is None

    @property
    def oauth(self) -> Sequence[OAuth]:
        return [] if self._auth is None else self._auth.oauth

    @property
    def takes_keys(self) -> bool:
        return self._auth is not None and bool(self._auth.api_keys)

    def configure(self, auth: Auth | None, *, views: Iterable[str] = ()) -> None:
        """Replace the configuration. Fetched keys of unchanged issuers are kept."""
        self._auth = auth
        self._views = tuple(views)
        self._keys = ApiKeys({} if auth is None else auth.api_keys)
        self._configure_issuers()

    def set_audiences(self, names: Iterable[str]) -> None:
        """Set the URLs of this server. Tokens must have one of them as audience, unless the issuer's `audience` is set.

        The audience of a view is one of these URLs, followed by the name of the view.
        """
        self._own_names = frozenset(map(normal_audience, names))
        self._configure_issuers()

    async def identify(
        self, *, authorization: Sequence[str], api_key: Sequence[str], request: ProofRequest | None = None
    ) -> Identity | AuthError:
        """Return the identity of the caller who sent a request.

        1. Without `auth`, the request is anonymous.
        2. There must be one well-formed credential, otherwise 400 or 401.
        3. The credential must be a known API key or a valid access token (see `AccessTokens.identify`), otherwise 401.
        4. A token that is bound to a private key requires a DPoP proof (see `ProofVerifier.refusal`), otherwise 401.
        """
        if self._auth is None:
            return ANONYMOUS
        found = await self._identify(authorization, api_key, request)
        if isinstance(found, AuthError):
            self.denied[found.status] += 1
        return found

    async def _identify(
        self, authorization: Sequence[str], api_key: Sequence[str], request: ProofRequest | None
    ) -> Identity | AuthError:
        credential = read_credential(authorization=authorization, api_key=api_key)
        if not isinstance(credential, Credential):
            is_for_proof = bool(self.oauth) and all(entry.dpop == "required" for entry in self.oauth)
            return credential or replace(missing_credentials(), is_for_proof=is_for_proof)
        # Check API keys first, because digests are cheaper than signatures.
        holder = self._keys.find(credential.secret)
        if holder is not None and not credential.is_bound:
            return holder
        if not self._tokens or not credential.is_bearer:
            return invalid_token("The API key is unknown")
        found = await self._identify_token(credential.secret)
        return found if isinstance(found, AuthError) else await self._checked_binding(found, credential, request)

    async def _identify_token(self, token: str) -> Identity | AuthError:
        error: AuthError | None = None
        if not is_signed_token(token):
            for tokens in self._tokens.values():
                found = await tokens.introspect(token)
                if isinstance(found, Identity):
                    return found
                error = error or found
        elif (of_issuer := self._tokens.get(read_issuer(token) or "")) is not None:
            return await of_issuer.identify(token)
        return error or invalid_token(_reason_for(token))

    def tokens_of(self, issuer: str) -> AccessTokens | None:
        return self._tokens.get(issuer)

    async def _checked_binding(
        self, identity: Identity, credential: Credential, request: ProofRequest | None
    ) -> Identity | AuthError:
        thumbprint = thumbprint_of(identity.claims)
        if thumbprint is None:
            if credential.is_bound:
                return invalid_token("The token is not bound to a key. Send it as `Authorization: Bearer …`")
            is_required = self._tokens[identity.realm].entry.dpop == "required"
            return self._unproven("The token must be bound to a key of the client (DPoP)") if is_required else identity
        if not credential.is_bound:
            return self._unproven(
                "The token is bound to a key. Send it as `Authorization: DPoP …`, with a proof in the `DPoP` header"
            )
        proof = request or ProofRequest(proofs=(), method="", url="")
        return await self._proofs.refusal(proof, token=credential.secret, thumbprint=thumbprint) or identity

    def _unproven(self, message: str) -> AuthError:
        return replace(invalid_token(message), is_for_proof=True, nonce=self._proofs.nonce())

    def revalidate(self, identity: Identity) -> Identity | None:
        """Return the current identity for the caller's credential, or None if the credential has become invalid."""
        if self._auth is None:
            # Without `auth`, requests cannot be attributed to an owner.
            return identity if identity == ANONYMOUS else None
        if identity.realm == API_KEY_REALM:
            return self._keys.revalidate(identity)
        tokens = self._tokens.get(identity.realm)
        return identity if tokens is not None and tokens.accepts(identity) else None

    def status(self) -> JsonObject | None:
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
        entries = {issuer: entry for entry in self.oauth for issuer in entry.issuer}
        sources = {issuer: (issuer, entry.jwks_url) for issuer, entry in entries.items()}
        for gone in self._signing_keys.keys() - sources.values():
            # Close in the background, so that a reload does not wait for a fetch.
            self._closing.begin(self._signing_keys.pop(gone).close(), name="issuer left")
        self._tokens = {issuer: self._make_tokens(entry, issuer, sources[issuer]) for issuer, entry in entries.items()}

    def _make_tokens(self, oauth: OAuth, issuer: str, source: tuple[str, str | None]) -> AccessTokens:
        if source not in self._signing_keys:
            self._signing_keys[source] = JwksCache(issuer=issuer, keys_url=oauth.jwks_url, fetch=self._fetch)
        keys = self._signing_keys[source]
        # Fetch keys once listeners are open and audiences are known. Issuers of opaque tokens can lack keys.
        if self._own_names and oauth.introspection is None:
            keys.refresh_soon()
        own = self._own_names if oauth.audience is None else frozenset()
        introspector = None
        if oauth.introspection is not None:
            introspector = Introspector(issuer, oauth.introspection, fetch=self._fetch, post=self._post, keys=keys)
        return AccessTokens(
            issuer,
            oauth,
            keys,
            audiences=own if oauth.audience is None else frozenset(map(normal_audience, oauth.audience)),
            views={normal_audience(f"{url}/{view}"): view for url in own for view in self._views},
            introspector=introspector,
        )


def read_credential(*, authorization: Sequence[str], api_key: Sequence[str]) -> Credential | AuthError | None:
    """Return the credential in the `Authorization` or `X-API-Key` header. Return None if both are missing.

    MCP 2026-07-28 basic/authorization, "Access Token Usage": credentials in query strings are ignored, because logs and
    histories contain URLs.

    1. There must be at most one credential, otherwise 400.
    2. The credential must not contain spaces, otherwise 400.
    3. The scheme must be Bearer or DPoP. Other schemes are ignored.
    """
    if len(authorization) + len(api_key) > 1:
        return invalid_request("Several credentials were sent. Send one `Authorization` or `X-API-Key` header")
    if api_key:
        return _credential(api_key[0].strip(), what="X-API-Key", is_bearer=False)
    if not authorization:
        return None
    scheme, _, rest = authorization[0].strip().partition(" ")
    if not scheme:
        return invalid_request("The `Authorization` header is empty")
    # RFC 9110 §11.1: schemes are case-insensitive.
    if scheme.lower() not in {_BEARER, _DPOP}:
        return None
    return _credential(rest.strip(" "), what="Authorization", is_bearer=True, is_bound=scheme.lower() == _DPOP)


def _credential(text: str, *, what: str, is_bearer: bool, is_bound: bool = False) -> Credential | AuthError:
    if _VISIBLE.fullmatch(text) is None:
        return invalid_request(f"The header {what} must contain one credential without spaces")
    return Credential(text, is_bearer, is_bound)


def access_token_of(identity: Identity, authorization: Sequence[str]) -> Credential | None:
    """Return the access token of a request, or None if the request was authenticated in another way."""
    if identity.principal is None or identity.realm == API_KEY_REALM:
        return None
    credential = read_credential(authorization=authorization, api_key=())
    return credential if isinstance(credential, Credential) else None


def check_auth(loaded: LoadedConfig, problems: Problems) -> None:
    """Report problems of `auth` that the models do not detect."""
    auth, problems = loaded.document.auth, problems.at("auth")
    if auth is None:
        return
    _check_api_keys(auth.api_keys, problems.at("api_keys"))
    if auth.oauth and not is_installed():
        message = f"needs packages that are not installed: {install_command('auth')}"
        problems.at("oauth").error(message)
    listen = loaded.document.listen
    is_elsewhere = listen.trusted_proxies or listen.allowed_hosts or not Address.parse(listen.http).is_loopback
    for index, entry in enumerate(auth.oauth):
        place = problems.at("oauth", index) if len(auth.oauth) > 1 else problems.at("oauth")
        _check_claim(entry, place)
        if entry.audience is None and listen.public_url is None and is_elsewhere:
            place.warning(
                f"tokens are issued for the URL that clients use, which is not {listen.http}. "
                "Set `listen.public_url`, or set `audience` here"
            )
        for key in ("required_scopes", "scopes_supported"):
            if _OFFLINE_ACCESS in getattr(entry, key):
                # MCP 2026-07-28 basic/authorization, "Refresh Tokens".
                message = f"`{_OFFLINE_ACCESS}` is a scope for clients. Servers should not request it"
                place.at(key).warning(message)


def _check_api_keys(keys: Mapping[str, ApiKey], problems: Problems) -> None:
    holders: dict[str, str] = {}
    for name, key in keys.items():
        for digest in dict.fromkeys(digests(key)):
            first = holders.setdefault(digest, name)
            if first != name:
                problems.at(name).error(f"has the same key as `{first}`. Each key must have only one holder")
        if any(len(secret) < MIN_KEY_LENGTH for secret in key.secret):
            message = f"has fewer than {MIN_KEY_LENGTH} characters. Create a longer key with `openssl rand -hex 32`"
            problems.at(name, "secret").warning(message)


def _check_claim(entry: OAuth, problems: Problems) -> None:
    if entry.roles is not None and entry.roles.claim is not None:
        try:
            jmespath.compile(entry.roles.claim)
        except JMESPathError as error:
            problems.at("roles", "claim").error(f"`{entry.roles.claim}` is not a JMESPath expression: {error}")


def _reason_for(token: str) -> str:
    try:
        read_header(token)
    except TokenError as error:
        return str(error)
    return FOREIGN_ISSUER
