"""Private keys with which the gateway signs tokens."""

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
)

from gateway.access.jose import read_private_key

PrivateKey = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey


def pem(key: PrivateKey, encryption: KeySerializationEncryption | None = None) -> str:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption or NoEncryption()).decode()


@pytest.mark.parametrize(
    ("key", "algorithm"),
    [
        (rsa.generate_private_key(65537, 2048), "RS256"),
        (ec.generate_private_key(ec.SECP384R1()), "ES384"),
        (ed25519.Ed25519PrivateKey.generate(), "EdDSA"),
    ],
    ids=["RSA", "P-384", "Ed25519"],
)
def test_algorithm_fits_the_key(key: PrivateKey, algorithm: str) -> None:
    assert read_private_key(pem(key))[1][0] == algorithm


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (pem(ec.generate_private_key(ec.SECP256R1()), BestAvailableEncryption(b"password")), "is encrypted"),
        (pem(ec.generate_private_key(ec.SECP256K1())), "is not a supported key"),
        (pem(rsa.generate_private_key(65537, 1024)), "is not a supported key"),
        ("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n", "is not a private key in PEM"),
    ],
    ids=["encrypted", "secp256k1", "short", "malformed"],
)
def test_unusable_key_is_an_error(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        read_private_key(text)
