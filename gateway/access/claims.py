"""Reads scopes, roles and template variables from the claims of common identity providers."""

import hashlib
from collections.abc import Iterable, Sequence
from typing import Final

import jmespath
import orjson
from jmespath.exceptions import JMESPathError

from gateway import exact_json
from gateway.access.identity import API_KEY_REALM, Identity
from gateway.config.models.auth import Auth, OAuth
from gateway.json_types import Json, JsonObject

_EVERY_CALLER: Final = "*"
_ROLE_CLAIMS: Final = ("roles", "groups", "cognito:groups")
"""Claims that contain roles in tokens of Microsoft Entra ID, Okta and Amazon Cognito, in this order."""


def roles_of(claims: JsonObject, entry: OAuth) -> tuple[str, ...]:
    """Return the roles and groups of a caller from `roles.claim`, or from well-known claims."""
    if entry.roles is not None and entry.roles.claim is not None:
        try:
            claim = jmespath.search(entry.roles.claim, claims)
            return tuple(claim.split() if isinstance(claim, str) else strings_of(claim))
        except JMESPathError:  # a function that does not accept the type of this claim
            return ()
    found = [role for name in _ROLE_CLAIMS for role in strings_of(claims.get(name))]
    # Keycloak has roles of the realm and of each client.
    clients = claims.get("resource_access")
    holders = [claims.get("realm_access")]
    if isinstance(clients, dict):
        holders += [clients.get(name) for name in entry.audience or ()]
    found += [role for holder in holders if isinstance(holder, dict) for role in strings_of(holder.get("roles"))]
    return tuple(dict.fromkeys(found))


def scopes_of(claims: JsonObject, roles: Sequence[str] = (), entry: OAuth | None = None) -> frozenset[str]:
    """Return the scopes of a token, and the scopes that its roles grant.

    RFC 9068 §2.2.3 specifies `scope`. Entra and Okta use `scp`, and Auth0 adds `permissions`.
    """
    claim = claims["scope"] if "scope" in claims else claims.get("scp")
    written = " ".join([*strings_of(claim), *strings_of(claims.get("permissions"))]).split()
    granted = {} if entry is None or entry.roles is None else entry.roles.scopes
    return frozenset(written).union(*(granted.get(role, ()) for role in (*roles, _EVERY_CALLER)))


def strings_of(claim: Json) -> list[str]:
    return [each for each in (claim if isinstance(claim, list) else [claim]) if isinstance(each, str)]


def identity_of_claims(claims: Json, auth: Auth | None) -> Identity:
    """Return the identity for the claims of a token, or for the API key that `sub` names.

    Raise ValueError if `auth` does not allow such a caller.
    """
    if auth is None:
        raise ValueError("`auth` is not set, so callers cannot be identified")
    if not isinstance(claims, dict) or not isinstance(claims.get("sub"), str) or not claims["sub"]:
        raise ValueError("expected claims with a `sub`, such as {sub: ann, groups: [ops]}")
    subject, issuer = claims["sub"], claims.get("iss")
    if issuer is None and subject in auth.api_keys:
        return Identity(principal=subject, realm=API_KEY_REALM, scopes=frozenset(auth.api_keys[subject].scopes))
    if not auth.oauth and issuer is not None:
        raise ValueError("`iss` requires `auth.oauth`. Omit `iss` for the holder of an API key")
    if not auth.oauth:
        raise ValueError(f"`{subject}` is not a key of `auth.api_keys`, and `auth` has no `oauth`")
    entry = next((each for each in auth.oauth if issuer is None or issuer in each.issuer), None)
    if entry is None:
        raise ValueError(f"`iss` must be an issuer of `auth.oauth`: {', '.join(auth.issuers)}")
    roles, realm = roles_of(claims, entry), issuer or entry.issuer[0]
    scopes = scopes_of(claims, roles, entry)
    return Identity(principal=subject, realm=realm, scopes=scopes, claims={"iss": realm, **claims}, roles=roles)


def facts_of(identity: Identity, client_info: JsonObject) -> JsonObject:
    """Return the value of `caller` in templates. `client_info` names the client if the caller has no token."""
    # `client_id`: RFC 9068 §2.2. `azp`: OpenID Connect Core §2.
    is_token = identity.realm not in {"", API_KEY_REALM}
    names = (identity.claims.get("client_id"), identity.claims.get("azp")) if is_token else (client_info.get("name"),)
    return {
        "subject": identity.principal or "",
        "issuer": "" if identity.realm == API_KEY_REALM else identity.realm,
        "scopes": sorted(identity.scopes or ()),
        "roles": list(identity.roles),
        "claims": identity.claims,
        "client": next((name for name in names if isinstance(name, str)), ""),
    }


def digest_of_facts(facts: JsonObject, names: Iterable[str]) -> bytes:
    """Return a digest of those members of the template variable `caller` that `names` lists, for cache keys.

    The result is empty if `names` is empty.
    """
    values: dict[str, Json] = {}
    for name in names:
        fact, _, claim = name.partition(".")
        # A list, so that a missing claim differs from null.
        values[name] = [facts[fact]] if not claim else [facts[fact][claim]] if claim in facts[fact] else []
    if not values:
        return b""
    return hashlib.sha256(exact_json.dumps(values, option=orjson.OPT_SORT_KEYS)).digest()
