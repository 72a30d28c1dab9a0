"""DPoP proofs (RFC 9449) that the gateway holds the key of an access token. Requires the extra `auth`."""

import base64
import hashlib
import secrets
import time
from typing import Final

from yarl import URL

from gateway.access.jose import read_private_key
from gateway.json_types import Json

ALGORITHM: Final = "ES256"


def new_key() -> str:
    from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key  # noqa: PLC0415 - extra
    from cryptography.hazmat.primitives.serialization import (  # noqa: PLC0415 - of the extra
        Encoding,
        NoEncryption,
        PrivateFormat,
    )

    key = generate_private_key(SECP256R1())
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


def proof(key: str, method: str, url: URL, *, access_token: str | None, nonce: str | None) -> str:
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
    if nonce is not None:
        claims["nonce"] = nonce
    return jwt.encode(claims, private, algorithm=ALGORITHM, headers={"typ": "dpop+jwt", "jwk": public})
