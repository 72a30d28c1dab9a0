"""Verifies access tokens of an authorization server: JSON Web Tokens, checked locally (RFC 9068).

Threats answered here (RFC 8725, RFC 9068 §4):

- an unsigned token, or one signed with the public key as if it were a shared secret: the algorithms come from a list
  of asymmetric ones, and a key is used for its own type alone;
- a token that names its own key (`jku`, `x5u`, `jwk`, a path in `kid`): keys come from the issuer, and `kid` is only
  compared;
- a token that the same issuer made for another server: the audience must be this one (RFC 8707);
- an ID token or a logout token: `typ` must be that of an access token, or the general one.
"""

import hashlib
import math
import time
from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import urlsplit, urlunsplit

import msgspec

from gateway.access.auth_error import AuthError, insufficient_scope, invalid_token, temporarily_unavailable
from gateway.access.identity import Identity
from gateway.access.jose import TokenError, WrongKeyError, read_claims, read_header
from gateway.access.jwks import JwksCache, KeysUnavailableError
from gateway.bounded_map import BoundedMap
from gateway.config.models.address import host_of
from gateway.json_types import Json, JsonObject

_MAX_TRIED: Final = 8
"""Keys that are tried for a token without `kid`. Anybody can send one, and each try costs a signature check."""
MAX_TOKENS: Final = 4096
"""Verified tokens that are remembered."""
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}


class TokenRules(msgspec.Struct, frozen=True, kw_only=True):
    """The requirements that a token must meet."""

    issuer: str
    audiences: frozenset[str]
    """Accepted values of `aud`; see `normal_audience`."""
    views: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Further values of `aud`, each meant for the view of that name alone."""
    required_scopes: Sequence[str] = ()
    takes_client_id: bool = False
    """Whether `client_id` stands in for a missing `aud`."""

    @property
    def fingerprint(self) -> str:
        """A digest that differs between rules that accept different tokens."""
        # Without scopes and views: `accepts` compares these with what the identity holds.
        facts = [self.issuer, *sorted(self.audiences), *(["client_id"] if self.takes_client_id else [])]
        return hashlib.sha256("\n".join(facts).encode()).hexdigest()[:16]

    def accepts(self, identity: Identity) -> bool:
        """Whether these rules still accept an identity that they, or earlier rules, accepted."""
        return (
            identity.realm == self.issuer
            and identity.credential == self.fingerprint
            and identity.holds(frozenset(self.required_scopes))
            and (identity.views is None or identity.views <= frozenset(self.views.values()))
        )


class AccessTokens:
    """Identifies callers by access tokens of one issuer."""

    def __init__(self, rules: TokenRules, keys: JwksCache) -> None:
        self.rules: Final = rules
        self._fingerprint: Final = rules.fingerprint
        self._keys: Final = keys
        self._verified: Final[BoundedMap[bytes, tuple[int, Identity]]] = BoundedMap(MAX_TOKENS, clock=time.time)
        """Identities by the digests of their tokens until these expire, each with the version of the keys that verified
        it: so that the next request with a token verifies none, and with newer keys does so again."""

    async def identify(self, token: str) -> Identity | AuthError:
        """Verify a token, unless the issuer's present keys have verified it before.

        1. the token is a signed JWT: see `read_header`, 401
        2. its key is one of the issuer's: 401; while the issuer cannot be asked: 503
        3. its signature and claims are valid: see `read_claims`, 401
        4. its audience is this server: 401
        5. it has the scopes that every token must have: 403
        """
        # First of all: a token that is in use must not keep a key alive that the issuer has withdrawn.
        self._keys.refresh_soon()
        version, identity = self._verified.get(_digest(token)) or (0, None)
        return identity if identity is not None and version == self._keys.version else await self._verify(token)

    async def _verify(self, token: str) -> Identity | AuthError:
        try:
            claims = await self._verified_claims(token)
        except TokenError as error:
            return invalid_token(str(error))
        except KeysUnavailableError as error:
            seconds = math.ceil(error.seconds)
            return temporarily_unavailable(
                "The keys of the authorization server cannot be fetched now", retry_after=seconds
            )
        scopes = scopes_of(claims)
        if not scopes.issuperset(self.rules.required_scopes):
            return insufficient_scope(self.rules.required_scopes)
        identity = Identity(
            principal=claims["sub"],
            realm=self.rules.issuer,
            scopes=scopes,
            credential=self._fingerprint,
            views=self._views_of(claims),
            expires_at=float(claims["exp"]),
            claims=dict(claims),
        )
        # Nothing was awaited since the keys were found: this is the version that has verified the token.
        self._verified.put(_digest(token), (self._keys.version, identity), expires=identity.expires_at or 0)
        return identity

    async def _verified_claims(self, token: str) -> JsonObject:
        algorithm, kid = read_header(token)
        wrong = WrongKeyError("The token is signed with a key that the authorization server does not publish")
        for each in (await self._keys.find(kid, algorithm))[:_MAX_TRIED]:
            try:
                claims = read_claims(token, each.key, algorithm=algorithm, issuer=self.rules.issuer)
            except WrongKeyError as error:
                wrong = error
                continue
            # Cognito: an ID token has an `aud`, which is the client, and no `typ`.
            if claims.get("token_use", "access") != "access":
                raise TokenError("The token is not an access token")
            if self._views_of(claims) == frozenset():
                raise TokenError("The token is meant for another server")
            return claims
        raise wrong

    def _views_of(self, claims: JsonObject) -> frozenset[str] | None:
        """The views that a token is meant for; None is all and the whole, and no view is another server."""
        audience = claims.get("aud", claims.get("client_id") if self.rules.takes_client_id else None)
        audiences = frozenset(map(normal_audience, _strings(audience)))
        if not self.rules.audiences.isdisjoint(audiences):
            return None
        return frozenset(self.rules.views[each] for each in audiences if each in self.rules.views)


def normal_audience(text: str) -> str:
    """Normalize an audience that is a URL, so that two spellings compare equal (RFC 3986 §6.2.2)."""
    try:
        parts = urlsplit(text)
        port = parts.port
    # No URL that can be read: compared to the letter.
    except ValueError:
        return text
    name = host_of(parts.netloc).lower()
    if parts.scheme not in _DEFAULT_PORTS or not name:
        return text
    host = f"[{name}]" if ":" in name else name
    netloc = host if port in {None, _DEFAULT_PORTS[parts.scheme]} else f"{host}:{port}"
    # MCP 2026-07-28 basic/authorization, "Canonical Server URI": with or without the last slash, it is one server.
    return urlunsplit((parts.scheme, netloc, parts.path.rstrip("/"), parts.query, ""))


def scopes_of(claims: JsonObject) -> frozenset[str]:
    """The scopes of a token (RFC 9068 §2.2.3). Some issuers write `scp` instead of `scope`, and some a list.

    Auth0 adds `permissions` where the operator of the API has asked for it.
    """
    claim = claims["scope"] if "scope" in claims else claims.get("scp")
    return frozenset(" ".join([*_strings(claim), *_strings(claims.get("permissions"))]).split())


def _strings(claim: Json) -> list[str]:
    """The strings of a claim that is a string or a list of strings."""
    return [each for each in (claim if isinstance(claim, list) else [claim]) if isinstance(each, str)]


def _digest(token: str) -> bytes:
    # A token may have 16 KiB, and should not lie in memory for longer than its request.
    return hashlib.sha256(token.encode()).digest()
