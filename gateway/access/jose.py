"""The one place that knows PyJWT, which is there only with the extra `auth`: hence imports where they are needed.

What a token's header says is looked at by hand first, since PyJWT goes on with some headers that we do not.
"""

import importlib
import re
import time
from typing import TYPE_CHECKING, Final

from gateway.json_types import Json, JsonObject

if TYPE_CHECKING:
    from jwt.algorithms import AllowedPublicKeys

ALGORITHMS: Final = {
    **dict.fromkeys(("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"), ("RSA", None)),
    "ES256": ("EC", "P-256"),
    "ES384": ("EC", "P-384"),
    "ES512": ("EC", "P-521"),
    "EdDSA": ("OKP", None),
}
"""How a token may be signed → the type of the key, and its curve. Never with a secret, and never not at all."""

_LEEWAY_SECONDS: Final = 10
"""How far the issuer's clock may be ahead of ours: a token is used as soon as it is made. For its end there is none: a
client that is told of it too early gets another one."""
LONGEST_TOKEN: Final = 16 * 1024
"""Characters."""
SHORTEST_RSA_KEY: Final = 2048
"""Bits. Shorter ones are not trusted (RFC 7518 §3.3)."""

_PACKAGES: Final = ("jwt", "cryptography.hazmat.primitives.asymmetric.rsa")
_FORM: Final = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+")
_LONGEST_KID: Final = 512
_TYPES: Final = frozenset({"jwt", "at+jwt", "application/at+jwt", "application/jwt"})
"""`typ`, in lower case: RFC 9068 §2.1, and what issuers wrote before it."""
_END_OF_TIME: Final = 253_402_300_800
"""The year 10000: what claims to be later is no NumericDate (RFC 7519 §2) that anybody could use."""
_CLAIMS: Final = ("iss", "sub", "exp", "aud")


class TokenError(Exception):
    """A token is not good; the text says why, to whoever sent it."""


class WrongKeyError(TokenError):
    """It was not signed with this key."""


def is_installed() -> bool:
    """Whether the packages are there. Imports them, which takes a while the first time."""
    try:
        for name in _PACKAGES:
            importlib.import_module(name)
    except ImportError:
        return False
    return True


def read_header(token: str) -> tuple[str, str | None]:
    """The algorithm and the key id of a token that may be one of ours; nothing of it is proven.

    1. it has the form of a signed JWT (RFC 7519 §3), of a bounded length
    2. `alg` is one of ours
    3. `typ` is not that of something else, such as a logout token
    4. there is no `crit`: what must be understood would not be (RFC 7515 §4.1.11)

    Raises:
        TokenError: it is none.
    """
    import jwt  # noqa: PLC0415 - of the extra

    if len(token) > LONGEST_TOKEN or _FORM.fullmatch(token) is None:
        raise TokenError("The credential is neither a key of this server nor a signed token")
    try:
        header = jwt.get_unverified_header(token)
    except jwt.PyJWTError:
        raise TokenError("The header of the token cannot be read") from None
    algorithm, kind, kid = header.get("alg"), header.get("typ", "JWT"), header.get("kid")
    if not isinstance(algorithm, str) or algorithm not in ALGORITHMS:
        raise TokenError("The token is not signed in a way that this server takes")
    if not isinstance(kind, str) or kind.lower() not in _TYPES or "crit" in header or len(kid or "") > _LONGEST_KID:
        raise TokenError("The token is of a kind that this server does not take")
    return algorithm, kid


def read_claims(token: str, key: "AllowedPublicKeys", *, algorithm: str, issuer: str) -> JsonObject:
    """The claims of a token, once its signature, `iss`, `exp`, `nbf` and `iat` are right, and it has a `sub` and `aud`.

    Raises:
        WrongKeyError: another key may have signed it.
        TokenError: it is not good.
    """
    import jwt  # noqa: PLC0415 - of the extra

    try:
        claims: JsonObject = jwt.decode(
            token,
            key,
            algorithms=[algorithm],
            issuer=issuer,
            leeway=_LEEWAY_SECONDS,
            options={"require": list(_CLAIMS), "verify_aud": False},
        )
    except jwt.InvalidSignatureError:
        raise WrongKeyError("The signature of the token is wrong") from None
    except jwt.ExpiredSignatureError:
        raise TokenError("The token has expired") from None
    except jwt.ImmatureSignatureError:
        raise TokenError("The token is not valid yet") from None
    except jwt.InvalidIssuerError:
        raise TokenError("The token is of another authorization server") from None
    except jwt.MissingRequiredClaimError as error:
        raise TokenError(f"The token has no {error.claim}") from None
    except jwt.PyJWTError:
        raise TokenError("The token cannot be read") from None
    if not claims["sub"]:
        raise TokenError("The token has no sub")
    if not isinstance(claims["exp"], int | float) or claims["exp"] > _END_OF_TIME:
        raise TokenError("The exp of the token is no time")
    if claims["exp"] <= time.time():
        raise TokenError("The token has expired")
    return claims


def public_key(entry: Json) -> "AllowedPublicKeys | None":
    """The key of an entry of a JSON Web Key Set; None if it is none, private, or too weak to be trusted."""
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey  # noqa: PLC0415 - of the extra
    from jwt import PyJWK, PyJWTError  # noqa: PLC0415 - of the extra

    kind, curve = entry["kty"], entry.get("crv")
    algorithm = next((name for name, takes in ALGORITHMS.items() if takes in {(kind, curve), (kind, None)}), None)
    if algorithm is None or "d" in entry:
        return None
    try:
        key: AllowedPublicKeys = PyJWK(entry, algorithm).key
    except (PyJWTError, ValueError, TypeError):
        return None
    return None if isinstance(key, RSAPublicKey) and key.key_size < SHORTEST_RSA_KEY else key
