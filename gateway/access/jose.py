"""Reads and signs JSON Web Tokens, and reads keys, with PyJWT (RFC 7515, RFC 7517, RFC 7519).

PyJWT is part of the extra `auth`, so each function imports the package when it is called.
"""

import base64
import hashlib
import importlib
import json
import re
import time
from collections.abc import Collection, Sequence
from functools import lru_cache
from typing import Final

from gateway.json_types import Json, JsonObject

ALGORITHMS: Final = {
    **dict.fromkeys(("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"), ("RSA", None)),
    "ES256": ("EC", "P-256"),
    "ES384": ("EC", "P-384"),
    "ES512": ("EC", "P-521"),
    "EdDSA": ("OKP", None),
}
"""Accepted values of `alg`, with the type and curve of the key. Shared secrets and `none` are not accepted."""

FOREIGN_ISSUER: Final = "The token was issued by a different authorization server"
LEEWAY_SECONDS: Final = 10
"""How many seconds the clock of an issuer can be ahead. The leeway does not apply to `exp`."""
MAX_TOKEN_LENGTH: Final = 16 * 1024
_MIN_RSA_KEY_BITS: Final = 2048  # RFC 7518 §3.3

_PACKAGES: Final = ("jwt", "cryptography.hazmat.primitives.asymmetric.rsa")
_FORM: Final = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+")
_MAX_KID_LENGTH: Final = 512
_TYPES: Final = frozenset({"jwt", "at+jwt", "application/at+jwt", "application/jwt"})
"""Accepted values of `typ` in lower case, from RFC 9068 §2.1 and from older issuers."""
_END_OF_TIME: Final = 253_402_300_800
"""The start of the year 10000 in Unix time. Python cannot represent this date."""
_CLAIMS: Final = ("iss", "sub", "exp")
_THUMBPRINT_MEMBERS: Final = {"RSA": ("e", "kty", "n"), "EC": ("crv", "kty", "x", "y"), "OKP": ("crv", "kty", "x")}
"""Members that a thumbprint covers, by type of key (RFC 7638 §3.2, RFC 8037 §2)."""
_CURVES: Final = {"secp256r1": "ES256", "secp384r1": "ES384", "secp521r1": "ES512"}


class TokenError(Exception):
    """A token is not valid. The text is sent to the client."""


def is_installed() -> bool:
    """Import the packages of the `auth` extra. Return False if any of them is not installed."""
    try:
        for name in _PACKAGES:
            importlib.import_module(name)
    except ImportError:
        return False
    return True


def read_header(token: str, *, types: Collection[str] = _TYPES) -> tuple[str, str | None]:
    """Return `alg` and `kid` of an unverified token, or raise TokenError.

    1. The token is a signed JWT (RFC 7519 §3) of limited length.
    2. `alg` is one of `ALGORITHMS`.
    3. `typ` is one of `types`.
    4. `crit` is missing, because extensions are not supported (RFC 7515 §4.1.11).
    """
    import jwt  # noqa: PLC0415 - of the extra

    if len(token) > MAX_TOKEN_LENGTH or _FORM.fullmatch(token) is None:
        raise TokenError("The credential is neither a valid API key nor a signed token (JWT)")
    try:
        header = jwt.get_unverified_header(token)
    except jwt.PyJWTError:
        raise TokenError("The header of the token cannot be read") from None
    algorithm, kind, kid = header.get("alg"), header.get("typ", "JWT"), header.get("kid")
    if not isinstance(algorithm, str) or algorithm not in ALGORITHMS:
        raise TokenError("The token is not signed with an algorithm that this server accepts")
    if not isinstance(kind, str) or kind.lower() not in types or "crit" in header or len(kid or "") > _MAX_KID_LENGTH:
        raise TokenError("The token has a type that this server does not accept")
    return algorithm, kid


def read_issuer(token: str) -> str | None:
    import jwt  # noqa: PLC0415 - of the extra

    try:
        issuer = jwt.decode(token, options={"verify_signature": False}).get("iss")
    except (jwt.PyJWTError, RecursionError):
        return None
    return issuer if isinstance(issuer, str) else None


def is_signed_token(token: str) -> bool:
    import jwt  # noqa: PLC0415 - of the extra

    try:
        return len(token) <= MAX_TOKEN_LENGTH and bool(jwt.get_unverified_header(token))
    except jwt.PyJWTError:
        return False


def read_signed_response(token: str, keys: Sequence[Json], *, algorithm: str, issuer: str, audience: str) -> JsonObject:
    """Return the claims of a signed introspection response (RFC 9701), or raise TokenError."""
    import jwt  # noqa: PLC0415 - of the extra

    try:
        return _decoded(token, keys, algorithms=[algorithm], issuer=issuer, audience=audience)
    except (jwt.PyJWTError, OverflowError):
        raise TokenError("The response is not valid") from None


def _decoded(token: str, keys: Sequence[Json], **options: Json) -> JsonObject:
    import jwt  # noqa: PLC0415 - of the extra

    problem = "The token is signed with a key that the authorization server does not publish"
    for key in keys:
        try:
            claims: JsonObject = jwt.decode(token, key, leeway=LEEWAY_SECONDS, **options)
        except jwt.InvalidSignatureError:
            problem = "The signature of the token is invalid"
        else:
            return claims
    raise TokenError(problem)


def read_proof(proof: str) -> tuple[JsonObject, str]:
    """Return the claims of a DPoP proof (RFC 9449 §4.2) and the SHA-256 thumbprint of its key (RFC 7638).

    Raise TokenError if the proof is malformed or was not signed with its key.
    """
    import jwt  # noqa: PLC0415 - of the extra

    try:
        header = jwt.get_unverified_header(proof)
        algorithm, jwk = header.get("alg"), header.get("jwk")
        if header.get("typ") != "dpop+jwt" or algorithm not in ALGORITHMS or "crit" in header:
            raise TokenError("The DPoP proof has an unsupported type, algorithm or `crit` header")
        if not isinstance(jwk, dict) or not isinstance(jwk.get("kty"), str) or (key := public_key(jwk)) is None:
            raise TokenError("The DPoP proof has no public key that this server accepts")
        # PyJWT checks that the algorithm fits the type of the key.
        claims: JsonObject = jwt.decode(
            proof,
            key,
            algorithms=[algorithm],
            options={"verify_exp": False, "verify_iat": False, "verify_nbf": False, "verify_aud": False},
        )
        members = {name: jwk[name] for name in _THUMBPRINT_MEMBERS[jwk["kty"]]}
        text = json.dumps(members, sort_keys=True, separators=(",", ":"))
    except (jwt.PyJWTError, RecursionError, KeyError, TypeError, ValueError):
        raise TokenError("The DPoP proof is not valid") from None
    return claims, encoded(hashlib.sha256(text.encode()).digest())


def encoded(data: bytes) -> str:
    """Return base64url without padding (RFC 7515 §2)."""
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def read_claims(token: str, keys: Sequence[Json], *, algorithm: str, issuer: str) -> JsonObject:
    """Check the signature, `iss`, `exp`, `nbf`, `iat` and `sub`. Return the claims, or raise TokenError."""
    import jwt  # noqa: PLC0415 - of the extra

    try:
        claims = _decoded(
            token,
            keys,
            algorithms=[algorithm],
            issuer=issuer,
            # `AccessTokens` checks the audience, because PyJWT does not normalize URLs.
            options={"require": list(_CLAIMS), "verify_aud": False},
        )
    except jwt.ExpiredSignatureError:
        raise TokenError("The token has expired") from None
    except jwt.ImmatureSignatureError:
        raise TokenError("The token is not valid yet") from None
    except jwt.InvalidIssuerError:
        raise TokenError(FOREIGN_ISSUER) from None
    except jwt.MissingRequiredClaimError as error:
        raise TokenError(f"The token has no {error.claim} claim") from None
    except (jwt.PyJWTError, OverflowError):  # OverflowError: a time is Infinity
        raise TokenError("The token is malformed") from None
    # PyJWT accepts an empty `sub`.
    if not claims["sub"]:
        raise TokenError("The token has no sub claim")
    if not isinstance(claims["exp"], int | float) or claims["exp"] > _END_OF_TIME:
        raise TokenError("The exp claim of the token is not a valid timestamp")
    # PyJWT applies the leeway to `exp` as well.
    if claims["exp"] <= time.time():
        raise TokenError("The token has expired")
    return claims


def algorithms_of(entry: Json) -> Sequence[str]:
    """Return the accepted algorithms for the type of a JSON Web Key."""
    kinds = {(entry["kty"], entry.get("crv")), (entry["kty"], None)}
    return [name for name, takes in ALGORITHMS.items() if takes in kinds]


def public_key(entry: Json) -> Json:
    """Return the public key in a JSON Web Key, or None if the key is malformed, private or too short."""
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey  # noqa: PLC0415 - of the extra
    from jwt import PyJWK, PyJWTError  # noqa: PLC0415 - of the extra

    algorithms = algorithms_of(entry)
    # RFC 7518 §6.2.2 and §6.3.2: private keys have `d`.
    if not algorithms or "d" in entry:
        return None
    try:
        key = PyJWK(entry, algorithms[0]).key
    # RFC 7517 §5: unknown keys are ignored.
    except (PyJWTError, ValueError, TypeError):
        return None
    return None if isinstance(key, RSAPublicKey) and key.key_size < _MIN_RSA_KEY_BITS else key


@lru_cache(maxsize=64)  # parsing an RSA key takes a hundred times as long as a signature
def read_private_key(pem: str) -> tuple[Json, Sequence[str]]:
    """Return the key of a PEM text (RFC 7468 §10), and its algorithms. Raise ValueError without quoting the key."""
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey  # noqa: PLC0415 - of the extra
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # noqa: PLC0415 - of the extra
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey  # noqa: PLC0415 - of the extra
    from cryptography.hazmat.primitives.serialization import load_pem_private_key  # noqa: PLC0415 - of the extra

    try:
        key = load_pem_private_key(pem.encode(), password=None)
    # cryptography raises TypeError if a password is required.
    except TypeError:
        raise ValueError("is encrypted. Save the key without a password") from None
    except Exception:  # noqa: BLE001 - Boundary: cryptography raises many kinds, and their messages may quote the key
        raise ValueError("is not a private key in PEM format") from None
    if isinstance(key, RSAPrivateKey) and key.key_size >= _MIN_RSA_KEY_BITS:
        return key, [name for name, (kind, _) in ALGORITHMS.items() if kind == "RSA"]
    if isinstance(key, EllipticCurvePrivateKey) and key.curve.name in _CURVES:
        return key, [_CURVES[key.curve.name]]
    if isinstance(key, Ed25519PrivateKey):
        return key, ["EdDSA"]
    raise ValueError(
        f"is not a supported key. Use RSA of at least {_MIN_RSA_KEY_BITS} bits, P-256, P-384, P-521 or Ed25519"
    )


def sign(claims: JsonObject, pem: str, *, key_id: str | None, preferred: Sequence[str] = ()) -> str:
    """Return a JWT that is signed with a private key. `preferred` lists algorithms that the recipient accepts."""
    import jwt  # noqa: PLC0415 - of the extra

    key, algorithms = read_private_key(pem)
    algorithm = next((each for each in algorithms if each in preferred), algorithms[0])
    headers = None if key_id is None else {"kid": key_id}
    return jwt.encode(dict(claims), key, algorithm=algorithm, headers=headers)
