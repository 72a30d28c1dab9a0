"""Loads the certificate and key of a listener.

`load_identity` checks both files. If a renewed certificate is invalid, the old certificate stays in use. A replaced
certificate applies from the next handshake, and open connections are not affected.

Listeners support TLS 1.3, and TLS 1.2 with forward secrecy and authenticated encryption. Renegotiation is disabled,
because renegotiation costs the server more than the client.
"""

import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from gateway.config.diagnostics.problems import Problems
from gateway.config.models.server import Tls

_CIPHERS: Final = "ECDHE+AESGCM:ECDHE+CHACHA20"
"""The ciphers for TLS 1.2. All ciphers of TLS 1.3 are acceptable."""
_ENCRYPTED: Final = "is encrypted. Use a key without a password"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerIdentity:
    chain: bytes
    key: bytes = field(repr=False)
    context: ssl.SSLContext = field(compare=False, repr=False)


class ServerTls:
    """The TLS context of a listener. The certificate can be replaced while the listener is open."""

    def __init__(self, identity: ServerIdentity) -> None:
        self._current = identity.context
        self.context: Final = _new_context()
        self.context.sni_callback = self._select

    def use(self, identity: ServerIdentity) -> None:
        """Use this certificate in all later handshakes."""
        self._current = identity.context

    def _select(self, connection: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
        """Select the current certificate. OpenSSL calls this method in every handshake, even without a server name."""
        connection.context = self._current


def identity_files(tls: Tls, problems: Problems) -> tuple[Path, Path]:
    return problems.directory / tls.cert, problems.directory / tls.key


def load_identity(tls: Tls, problems: Problems) -> ServerIdentity | None:
    """Load the certificate and the key of a listener. Report an error for the first check that fails.

    1. Both files are readable.
    2. The certificate is valid PEM.
    3. The key is valid PEM, not encrypted, and matches the certificate.
    """
    cert, key = identity_files(tls, problems)
    chain, secret = _read(cert, problems.at("cert")), _read(key, problems.at("key"))
    if chain is None or secret is None:
        return None
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=chain.decode("ascii", errors="replace"))
    except (ssl.SSLError, ValueError):
        problems.at("cert").error(f"{cert} contains no certificate in PEM format")
        return None
    context = _new_context()
    try:
        # An empty password, because OpenSSL would otherwise prompt on the terminal.
        context.load_cert_chain(cert, key, password="")
    except ssl.SSLError as error:
        problems.at("key").error(f"{key} {_ENCRYPTED if b'ENCRYPTED' in secret else _fault(error)}")
        return None
    except OSError as error:  # A file was removed after it was read.
        problems.error(f"cannot read {error.filename or cert}: {error.strerror}")
        return None
    return ServerIdentity(chain=chain, key=secret, context=context)


def _new_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(_CIPHERS)
    # TLS 1.3 has no renegotiation (RFC 8446 §4.1.2).
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.set_alpn_protocols(["http/1.1"])
    return context


def _read(path: Path, problems: Problems) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError as error:
        problems.error(f"cannot read {path}: {error.strerror}")
    return None


def _fault(error: ssl.SSLError) -> str:
    match error.reason:
        case "KEY_VALUES_MISMATCH" | "KEY_TYPE_MISMATCH":
            return "does not match `cert`"
        case "EE_KEY_TOO_SMALL" | "CA_KEY_TOO_SMALL" | "CA_MD_TOO_WEAK":
            return f"belongs to a certificate that is too weak for TLS ({error.reason})"
        case reason:
            return f"cannot be used: {reason or error}" if reason else "contains no private key in PEM format"
