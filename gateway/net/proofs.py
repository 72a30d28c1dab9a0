"""Sends access tokens, with a proof if a token is bound to a key of the gateway (DPoP, RFC 9449).

Keys and proofs require the extra `auth`.
"""

import base64
import hashlib
import secrets
import time
from typing import Final

from msgspec.structs import replace
from multidict import MultiMapping
from yarl import URL

from gateway.access.jose import read_private_key
from gateway.bounded_map import BoundedMap
from gateway.json_types import Json
from gateway.net.request import Request, bound

ALGORITHM: Final = "ES256"
Nonces = BoundedMap[str, str]
"""The newest nonces of servers, by origin (RFC 9449 §8, §9)."""


def note_nonce(nonces: Nonces, url: URL, headers: MultiMapping[str]) -> bool:
    """Save the nonce of a response, and return whether there is one."""
    nonce = headers.get("DPoP-Nonce")
    if nonce:
        nonces.put(str(url.origin()), nonce)
    return bool(nonce)


def with_token(request: Request, token: str, *, key: str, nonces: Nonces) -> Request:
    """Add an access token. `key` is empty for a bearer token. Redirects do not send the token to other origins."""
    headers = {"Authorization": f"Bearer {token}"}
    if key:
        text = proof(key, request.method, request.url, access_token=token, nonces=nonces)
        headers = {"Authorization": f"DPoP {token}", "DPoP": text}
    return replace(request, headers=(*request.headers, *bound(headers)))


def new_key() -> str:
    from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key  # noqa: PLC0415 - extra
    from cryptography.hazmat.primitives.serialization import (  # noqa: PLC0415 - of the extra
        Encoding,
        NoEncryption,
        PrivateFormat,
    )

    key = generate_private_key(SECP256R1())
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


def proof(key: str, method: str, url: URL, *, access_token: str | None, nonces: Nonces) -> str:
    """Return the `DPoP` header of one request (RFC 9449 §4.2)."""
    import jwt  # noqa: PLC0415 - of the extra
    from jwt.algorithms import ECAlgorithm  # noqa: PLC0415 - of the extra

    private = read_private_key(key).key
    public = ECAlgorithm.to_jwk(private.public_key(), as_dict=True)
    claims: dict[str, Json] = {
        "jti": secrets.token_urlsafe(16),
        "htm": method,
        "htu": str(url.with_query(None).with_fragment(None)),
        "iat": int(time.time()),
    }
    if access_token is not None:
        claims["ath"] = base64.urlsafe_b64encode(hashlib.sha256(access_token.encode()).digest()).decode().rstrip("=")
    nonce = nonces.get(str(url.origin()))
    if nonce is not None:
        claims["nonce"] = nonce
    return jwt.encode(claims, private, algorithm=ALGORITHM, headers={"typ": "dpop+jwt", "jwk": public})
