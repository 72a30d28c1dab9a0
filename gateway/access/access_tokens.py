"""Access tokens of an authorization server: JSON Web Tokens, checked here and sent nowhere.

Threats answered here (RFC 8725, RFC 9068 §4):

- a token that nobody signed, or that was signed with the public key as if it were a secret: the algorithms are ours,
  asymmetric all of them, and a key is used for its own kind alone;
- a token that says where its key is (`jku`, `x5u`, `jwk`, a path in `kid`): keys come from the issuer, `kid` is
  compared and nothing else;
- a token that the same issuer made for somebody else: the audience must be this server (RFC 8707);
- an ID token, a logout token: `typ` says an access token or nothing special.
"""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit, urlunsplit

from gateway.access.denial import Denial, insufficient, invalid, unavailable
from gateway.access.identity import Identity
from gateway.access.jose import TokenError, WrongKeyError, read_claims, read_header
from gateway.access.proven_tokens import ProvenTokens
from gateway.access.signing_keys import KeysUnavailableError, SigningKeys
from gateway.json_types import Json, JsonObject

_MOST_TRIED: Final = 8
"""Keys, for a token that does not say which: anybody can send one, and each try takes a while."""
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRules:
    """What a token must be."""

    issuer: str
    audiences: frozenset[str]
    """Whom it may be meant for; see `normal_audience`."""
    required_scopes: Sequence[str] = ()

    @property
    def mark(self) -> str:
        """Tells these rules from others that would let other tokens in."""
        return hashlib.sha256("\n".join([self.issuer, *sorted(self.audiences)]).encode()).hexdigest()[:16]

    def let_in(self, identity: Identity) -> bool:
        """Whether they would let in whom they, or rules before them, did."""
        return (
            identity.realm == self.issuer
            and identity.credential == self.mark
            and identity.holds(frozenset(self.required_scopes))
        )


class AccessTokens:
    """Says whom a token was made for."""

    def __init__(self, rules: TokenRules, keys: SigningKeys) -> None:
        self.rules: Final = rules
        self._mark: Final = rules.mark
        self._keys: Final = keys
        self._proven: Final = ProvenTokens()

    async def identify(self, token: str) -> Identity | Denial:
        """Check a token, or remember that it was checked.

        1. it is a signed JWT: see `read_header`, 401
        2. its key is one of the issuer's: 401; while the issuer cannot be asked: 503
        3. its signature and claims are right: see `read_claims`, 401
        4. it is meant for us: 401
        5. it has the scopes that every token must have: 403
        """
        self._keys.begin()
        known = self._proven.find(token, keys_version=self._keys.version)
        return await self._checked(token) if known is None else known

    async def _checked(self, token: str) -> Identity | Denial:
        try:
            claims = await self._proven_claims(token)
        except TokenError as error:
            return invalid(str(error))
        except KeysUnavailableError as error:
            seconds = math.ceil(error.seconds)
            return unavailable("The keys of the authorization server cannot be fetched now", retry_after=seconds)
        scopes = _scopes(claims)
        if not scopes.issuperset(self.rules.required_scopes):
            return insufficient(self.rules.required_scopes)
        identity = Identity(
            principal=claims["sub"],
            realm=self.rules.issuer,
            scopes=scopes,
            credential=self._mark,
            expires_at=float(claims["exp"]),
        )
        self._proven.remember(token, identity, keys_version=self._keys.version)
        return identity

    async def _proven_claims(self, token: str) -> JsonObject:
        algorithm, kid = read_header(token)
        wrong = WrongKeyError("The token is signed with a key that the authorization server does not publish")
        for each in (await self._keys.find(kid, algorithm))[:_MOST_TRIED]:
            try:
                claims = read_claims(token, each.key, algorithm=algorithm, issuer=self.rules.issuer)
            except WrongKeyError as error:
                wrong = error
                continue
            audiences = _listed(claims["aud"])
            if self.rules.audiences.isdisjoint(map(normal_audience, audiences)):
                raise TokenError("The token is meant for another server")
            return claims
        raise wrong


def normal_audience(text: str) -> str:
    """An audience in the form in which two spellings of one URL are the same (RFC 3986 §6.2.2); others as they are."""
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        return text
    if parts.scheme not in _DEFAULT_PORTS or not parts.hostname:
        return text
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    netloc = host if port in {None, _DEFAULT_PORTS[parts.scheme]} else f"{host}:{port}"
    return urlunsplit((parts.scheme, netloc, parts.path.rstrip("/"), parts.query, ""))


def _scopes(claims: JsonObject) -> frozenset[str]:
    """RFC 9068 §2.2.3; some issuers write `scp`, and some a list."""
    claim = claims["scope"] if "scope" in claims else claims.get("scp")
    return frozenset(claim.split() if isinstance(claim, str) else _listed(claim))


def _listed(claim: Json) -> list[str]:
    """A claim that is text, or a list of texts."""
    return [each for each in (claim if isinstance(claim, list) else [claim]) if isinstance(each, str)]
