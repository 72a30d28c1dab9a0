"""The facts of a caller that templates read as `caller`."""

import hashlib
from collections.abc import Iterable

import orjson

from gateway import exact_json
from gateway.access.api_keys import REALM
from gateway.access.identity import Identity
from gateway.json_types import Json, JsonObject


def facts_of(identity: Identity, client_info: JsonObject) -> JsonObject:
    """Return the value of `caller`. `client_info` is only used for callers without a token."""
    return {
        "subject": identity.principal or "",
        "issuer": "" if identity.realm == REALM else identity.realm,
        "scopes": sorted(identity.scopes or ()),
        "roles": list(identity.roles),
        "claims": identity.claims,
        "client": _client_of(identity, client_info),
    }


def _client_of(identity: Identity, client_info: JsonObject) -> str:
    # `client_id`: RFC 9068 §2.2. `azp`: OpenID Connect Core §2.
    is_token = identity.realm not in {"", REALM}
    names = (identity.claims.get("client_id"), identity.claims.get("azp")) if is_token else (client_info.get("name"),)
    return next((name for name in names if isinstance(name, str)), "")


def digest_of_facts(facts: JsonObject, names: Iterable[str]) -> bytes:
    """Return a digest of the named facts for cache keys, or an empty value without names."""
    values: dict[str, Json] = {}
    for name in names:
        fact, _, claim = name.partition(".")
        # A list, so that a missing claim differs from null.
        values[name] = [facts[fact]] if not claim else [facts[fact][claim]] if claim in facts[fact] else []
    if not values:
        return b""
    return hashlib.sha256(exact_json.dumps(values, option=orjson.OPT_SORT_KEYS)).digest()
