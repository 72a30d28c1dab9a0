"""Verifies access tokens of one issuer: JSON Web Tokens (RFC 9068), and opaque tokens by introspection.

Threats (RFC 8725, RFC 9068 §4):

- Unsigned tokens, and tokens signed with the public key as a shared secret: only asymmetric algorithms are accepted.
- Tokens that name their own key (`jku`, `x5u`, `jwk`, a path in `kid`): keys are fetched from the issuer only.
- Tokens for another server: the audience must be this server (RFC 8707).
- ID tokens and logout tokens: `typ` must be that of an access token, or `JWT`.
"""

import hashlib
import math
import time
from collections.abc import Awaitable, Mapping, Sequence
from typing import Final
from urllib.parse import urlsplit, urlunsplit

import structlog

from gateway import exact_json
from gateway.access.auth_error import AuthError, insufficient_scope, invalid_token, temporarily_unavailable
from gateway.access.claims import roles_of, scopes_of, strings_of
from gateway.access.identity import Identity
from gateway.access.introspection import Introspector
from gateway.access.issuer import FetchError
from gateway.access.jose import (
    FOREIGN_ISSUER,
    LEEWAY_SECONDS,
    TokenError,
    is_signed_token,
    read_claims,
    read_header,
)
from gateway.access.jwks import JwksCache, KeysUnavailableError
from gateway.bounded_map import BoundedMap
from gateway.config.models.address import host_of
from gateway.config.models.auth import OAuth
from gateway.json_types import Json, JsonObject

log: Final = structlog.get_logger(__name__)

_MAX_TRIED: Final = 8
_STREAM_SECONDS: Final = 3600.0
MAX_TOKENS: Final = 4096
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}


class AccessTokens:
    def __init__(  # noqa: PLR0913 - the issuer, what is accepted, and how to verify it
        self,
        issuer: str,
        entry: OAuth,
        keys: JwksCache,
        *,
        audiences: frozenset[str],
        views: Mapping[str, str],
        introspector: Introspector | None = None,
    ) -> None:
        """Accept access tokens of `issuer`, which is configured by `entry`.

        `audiences` contains the accepted values of `aud`, normalized by `normal_audience`. The keys of `views` are
        audiences that grant access to a single view, whose name is the value.
        """
        self.entry: Final = entry
        self._issuer: Final = issuer
        self._audiences: Final = audiences
        self._views: Final = views
        self._introspector: Final = introspector
        self._keys: Final = keys
        self._verified: Final[BoundedMap[bytes, tuple[int, Identity]]] = BoundedMap(MAX_TOKENS, clock=time.time)
        """The version of the keys and the verified identity, by digest of the token."""
        policy = entry.model_dump(include={"roles", "algorithms", "dpop", "audience_claim"}, exclude_defaults=True)
        facts = [issuer, *sorted(audiences), *([repr(policy)] if policy else [])]
        self._fingerprint: Final = hashlib.sha256("\n".join(facts).encode()).hexdigest()[:16]
        """Digest of the rules for tokens, except required scopes and views, which `accepts` checks separately."""

    def accepts(self, identity: Identity) -> bool:
        """Whether an identity that was verified before a reload is still accepted."""
        return (
            identity.realm == self._issuer
            and identity.credential == self._fingerprint
            and identity.holds(frozenset(self.entry.required_scopes))
            and (identity.views is None or identity.views <= frozenset(self._views.values()))
        )

    async def identify(self, token: str) -> Identity | AuthError:
        """Verify a token, or return the cached identity if the issuer's keys have not changed.

        1. The token must be a signed JWT (see `read_header`), otherwise 401.
        2. The issuer must publish the signing key, otherwise 401. If the keys cannot be fetched, 503.
        3. The signature and the claims must be valid (see `read_claims`), otherwise 401.
        4. The audience must be this server, otherwise 401.
        5. The token must have the required scopes, otherwise 403.
        """
        # Refresh the keys for cached tokens too, so that keys withdrawn by the issuer become invalid.
        self._keys.refresh_soon()
        version, identity = self._verified.get(_digest(token)) or (0, None)
        return identity if identity is not None and version == self._keys.version else await self._verify(token)

    async def introspect(self, token: str) -> Identity | AuthError | None:
        """Ask the issuer about an opaque token. Return None if the token is inactive or introspection is not set up.

        1. The issuer must respond, otherwise 503.
        2. `iss`, `sub`, `exp` and `nbf` in the response must be valid, otherwise 401.
        3. The audience must be this server, otherwise 401.
        4. The token must have the required scopes, otherwise 403.
        """
        if self._introspector is None:
            return None
        try:
            claims = await self._introspector.claims_of(token)
        except FetchError as error:
            log.warning("token not introspected", issuer=self._issuer, reason=str(error))
            return temporarily_unavailable(
                "The authorization server cannot be reached to check the token", retry_after=5
            )
        if claims is None:
            return None
        try:
            self._check_introspected(claims)
        except TokenError as error:
            return invalid_token(str(error))
        return self._identity(claims, views=self._views_of(claims) if "aud" in claims else None)

    def _check_introspected(self, claims: JsonObject) -> None:
        now = time.time()
        if claims.get("iss", self._issuer) != self._issuer:
            raise TokenError(FOREIGN_ISSUER)
        if not isinstance(claims.get("sub"), str) or not claims["sub"]:
            raise TokenError("The introspection response has no sub claim")
        if not all(_is_time(claims[name]) for name in ("exp", "nbf") if name in claims):
            raise TokenError("The exp or nbf claim of the token is not a valid timestamp")
        if claims.get("exp", now + 1) <= now:
            raise TokenError("The token has expired")
        if claims.get("nbf", now) > now + LEEWAY_SECONDS:
            raise TokenError("The token is not valid yet")
        # RFC 7662 §2.2: `aud` is optional, but required if the entry sets `audience`.
        is_missing = "aud" not in claims and self.entry.audience is None
        if not is_missing and self._views_of(claims) == frozenset():
            raise TokenError("The token was issued for another server")

    async def _verify(self, token: str) -> Identity | AuthError:
        claims = await _claims_or_error(self._verified_claims(token))
        if isinstance(claims, AuthError):
            return claims
        identity = self._identity(claims, views=self._views_of(claims))
        if isinstance(identity, AuthError):
            return identity
        # There was no await since the keys were found, so their version is still the same.
        self._verified.put(_digest(token), (self._keys.version, identity), expires=identity.expires_at or 0)
        return identity

    async def identify_user(
        self, id_token: str, *, client_id: str, nonce: str, access_token: str, scopes: Sequence[str] | None
    ) -> Identity | AuthError:
        """Identify a user from the ID token and the access token of an OpenID Connect sign-in.

        If the access token is valid for this server, return its identity. Otherwise, return an identity with the roles
        of the ID token and with `scopes`, the scopes in the token response. If the response contains no scopes (RFC
        6749 §5.1), use those of the ID token.
        """
        claims = await _claims_or_error(self._id_claims(id_token, client_id=client_id, nonce=nonce))
        if isinstance(claims, AuthError):
            return claims
        found = await self.identify(access_token) if is_signed_token(access_token) else None
        if isinstance(found, AuthError) and found.status != 401:  # such as 403: a required scope is missing
            return found
        if isinstance(found, Identity) and found.principal == claims["sub"]:
            return found
        granted = {} if scopes is None else {"scope": " ".join(scopes)}
        return self._identity({**claims, **granted}, views=None)

    async def _verified_claims(self, token: str) -> JsonObject:
        claims = await self._signed_claims(token)
        # ID tokens of Amazon Cognito have no `typ`, and their `aud` is the client.
        if claims.get("token_use", "access") != "access":
            raise TokenError("The token is not an access token")
        if self._views_of(claims) == frozenset():
            raise TokenError("The token was issued for another server")
        return claims

    async def _id_claims(self, id_token: str, *, client_id: str, nonce: str) -> JsonObject:
        claims = await self._signed_claims(id_token)
        if claims.get("nonce") != nonce:
            raise TokenError("The ID token was issued for a different sign-in")
        audiences = strings_of(claims.get("aud"))
        if client_id not in audiences or claims.get("azp", client_id) != client_id:
            raise TokenError("The ID token was issued for a different client")
        if len(audiences) > 1 and "azp" not in claims:
            raise TokenError("The ID token has several audiences but no azp claim")
        return claims

    async def _signed_claims(self, token: str) -> JsonObject:
        algorithm, kid = read_header(token)
        if self.entry.algorithms is not None and algorithm not in self.entry.algorithms:
            raise TokenError("The token is signed with an algorithm that this server does not accept")
        keys = await self._keys.find(kid, algorithm)
        return read_claims(token, keys[:_MAX_TRIED], algorithm=algorithm, issuer=self._issuer)

    def _identity(self, claims: JsonObject, *, views: frozenset[str] | None) -> Identity | AuthError:
        try:
            exact_json.dumps(claims)
        except TypeError:
            # RFC 8259 §8.2: JSON can contain unpaired surrogates.
            return invalid_token("A claim of the token contains invalid Unicode")
        roles = roles_of(claims, self.entry)
        scopes = scopes_of(claims, roles, self.entry)
        if not scopes.issuperset(self.entry.required_scopes):
            return insufficient_scope(self.entry.required_scopes)
        return Identity(
            principal=claims["sub"],
            realm=self._issuer,
            scopes=scopes,
            credential=self._fingerprint,
            views=views,
            # Introspection responses can lack `exp`.
            expires_at=float(claims.get("exp", time.time() + _STREAM_SECONDS)),
            claims=dict(claims),
            roles=roles,
        )

    def _views_of(self, claims: JsonObject) -> frozenset[str] | None:
        # Access tokens of Amazon Cognito have a `client_id` instead of `aud`.
        takes_client_id = self.entry.audience_claim == "client_id" or claims.get("token_use") == "access"
        audience = claims.get("aud", claims.get("client_id") if takes_client_id else None)
        audiences = frozenset(map(normal_audience, strings_of(audience)))
        if not self._audiences.isdisjoint(audiences):
            return None
        return frozenset(self._views[each] for each in audiences if each in self._views)


async def _claims_or_error(reading: Awaitable[JsonObject]) -> JsonObject | AuthError:
    try:
        return await reading
    except TokenError as error:
        return invalid_token(str(error))
    except KeysUnavailableError as error:
        message = "The signing keys of the authorization server cannot be fetched at the moment"
        return temporarily_unavailable(message, retry_after=math.ceil(error.seconds))


def normal_audience(text: str) -> str:
    """Normalize a URL (RFC 3986 §6.2.2). Return other text unchanged."""
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        return text
    name = host_of(parts.netloc).lower()
    if parts.scheme not in _DEFAULT_PORTS or not name:
        return text
    host = f"[{name}]" if ":" in name else name
    netloc = host if port in {None, _DEFAULT_PORTS[parts.scheme]} else f"{host}:{port}"
    # MCP 2026-07-28 basic/authorization, "Canonical Server URI": ignore a trailing slash.
    return urlunsplit((parts.scheme, netloc, parts.path.rstrip("/"), parts.query, ""))


def _is_time(value: Json) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _digest(token: str) -> bytes:
    # Use a digest, so that tokens do not stay in memory.
    return hashlib.sha256(token.encode()).digest()
