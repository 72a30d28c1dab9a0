"""A private certificate authority for tests."""

import ssl
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_DAY: Final = timedelta(days=1)


class Authority:
    """Signs certificates for loopback."""

    def __init__(self, name: str = "authority") -> None:
        self._key: Final = ec.generate_private_key(ec.SECP256R1())
        self._name: Final = _name(name)
        builder = _builder(self._name, self._name, self._key, start=-_DAY, end=_DAY)
        constraints = x509.BasicConstraints(ca=True, path_length=None)
        self._certificate: Final = builder.add_extension(constraints, critical=True).sign(self._key, hashes.SHA256())

    @property
    def pem(self) -> str:
        return self._certificate.public_bytes(serialization.Encoding.PEM).decode()

    def trusting(self) -> ssl.SSLContext:
        """Return a client context that trusts this authority."""
        return ssl.create_default_context(cadata=self.pem)

    def issue(
        self,
        cert: Path,
        key: Path,
        *,
        name: str = "localhost",
        start: timedelta = -_DAY,
        end: timedelta = _DAY,
        password: bytes | None = None,
    ) -> None:
        """Write a certificate and its key."""
        secret = ec.generate_private_key(ec.SECP256R1())
        names = x509.SubjectAlternativeName(
            [x509.DNSName("localhost"), x509.DNSName(name), x509.IPAddress(ip_address("127.0.0.1"))]
        )
        builder = _builder(_name(name), self._name, secret, start=start, end=end).add_extension(names, critical=False)
        cert.write_bytes(builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
        encryption = serialization.BestAvailableEncryption(password) if password else serialization.NoEncryption()
        key.write_bytes(secret.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption))


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, *, start: timedelta, end: timedelta
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder(subject_name=subject, issuer_name=issuer, public_key=key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + start)
        .not_valid_after(now + end)
    )
