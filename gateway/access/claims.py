"""Identities of callers as written claims describe them, for the command line and for tests of tools."""

from gateway.access.access_tokens import scopes_of
from gateway.access.api_keys import REALM
from gateway.access.identity import Identity
from gateway.config.models.auth import Auth
from gateway.json_types import Json


def identity_of_claims(claims: Json, auth: Auth | None) -> Identity:
    """Return the identity of a caller whose verified token has these claims, or whose API key is named by `sub`.

    Raises:
        ValueError: no such caller can exist; the text says why.
    """
    if auth is None:
        raise ValueError("a caller requires `auth`: without it, callers are not identified")
    if not isinstance(claims, dict) or not isinstance(claims.get("sub"), str) or not claims["sub"]:
        raise ValueError("expected claims with a `sub`, such as {sub: ann, groups: [ops]}")
    subject, issuer = claims["sub"], claims.get("iss")
    if issuer is None and subject in auth.api_keys:
        return Identity(principal=subject, realm=REALM, scopes=frozenset(auth.api_keys[subject].scopes))
    issuers = auth.issuers
    if not issuers:
        raise ValueError(f"`{subject}` is not a key of `auth.api_keys`, and `auth` has no `oauth`")
    if issuer is not None and issuer not in issuers:
        raise ValueError(f"`iss` must be an issuer of `auth.oauth`: {', '.join(issuers)}")
    realm = issuer or issuers[0]
    return Identity(principal=subject, realm=realm, scopes=scopes_of(claims), claims={"iss": realm, **claims})
