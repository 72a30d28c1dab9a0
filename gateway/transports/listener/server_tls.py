"""Loads the certificate and key of a listener from their files when the configuration is loaded.

Everything that can fail does so in `load_identity`: a renewed certificate that is no good is one more problem of the
configuration, and the old one stays. Showing another one is then a single assignment: connections that are open keep
what they have, and the next handshake gets the new one, with the listener untouched.

TLS 1.2 with forward secrecy and authenticated encryption, or TLS 1.3; no renegotiation, which costs a server more than
its client; no HTTP/2, which is not spoken here.
"""

import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from gateway.config.diagnostics.problems import Problems
from gateway.config.models.server import Tls

_CIPHERS: Final = "ECDHE+AESGCM:ECDHE+CHACHA20"
"""Of TLS 1.2; those of 1.3 are all good."""
_ENCRYPTED: Final = "is encrypted; nobody is there to say its password"
_NOT_YET_VALID: Final = 9
_EXPIRED: Final = 10
"""X509_V_ERR_CERT_NOT_YET_VALID and X509_V_ERR_CERT_HAS_EXPIRED."""
_CERTIFICATE_PROBLEMS: Final = {_NOT_YET_VALID: "is not valid yet", _EXPIRED: "has expired"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerIdentity:
    """A certificate with its key, ready to be shown. Two are equal if they were made from the same bytes."""

    chain: bytes
    key: bytes = field(repr=False)
    context: ssl.SSLContext = field(compare=False, repr=False)


class ServerTls:
    """The TLS context of a listener, whose certificate may be replaced while it serves."""

    def __init__(self, identity: ServerIdentity) -> None:
        self._shown = identity.context
        self.context: Final = _new_context()
        self.context.sni_callback = self._choose

    def show(self, identity: ServerIdentity) -> None:
        """Use this one from the next handshake on."""
        self._shown = identity.context

    def _choose(self, connection: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
        """Called in each handshake, whether or not the client names a server."""
        connection.context = self._shown


def identity_files(tls: Tls, problems: Problems) -> tuple[Path, Path]:
    """The files of certificate and key."""
    return problems.directory / tls.cert, problems.directory / tls.key


def load_identity(tls: Tls, problems: Problems) -> ServerIdentity | None:
    """Load the files; what is wrong with them goes to the problems.

    1. both can be read
    2. the certificate is one: it is loaded without its key's being looked at
    3. the key is one, is not encrypted, and is the certificate's
    4. a client would take it today: a warning
    """
    cert, key = identity_files(tls, problems)
    chain, secret = _read(cert, problems.at("cert")), _read(key, problems.at("key"))
    if chain is None or secret is None:
        return None
    if not _is_certificate(chain):
        problems.at("cert").error(f"{cert} holds no certificate in PEM form")
        return None
    context, nobody = _new_context(), _Nobody()
    try:
        context.load_cert_chain(cert, key, password=nobody)
    except ssl.SSLError as error:
        problems.at("key").error(f"{key} {_ENCRYPTED if nobody.was_asked else _fault(error)}")
        return None
    except OSError as error:  # it was there a moment ago
        problems.error(f"cannot read {error.filename or cert}: {error.strerror}")
        return None
    warning = _refused_by_clients(context, chain)
    if warning is not None:
        problems.at("cert").warning(f"{cert} {warning}; clients will refuse it")
    return ServerIdentity(chain=chain, key=secret, context=context)


def _new_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(_CIPHERS)
    # Of TLS 1.2 alone; 1.3 has none (RFC 8446 §4.1.2).
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.set_alpn_protocols(["http/1.1"])
    return context


def _read(path: Path, problems: Problems) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError as error:
        problems.error(f"cannot read {path}: {error.strerror}")
    return None


def _is_certificate(chain: bytes) -> bool:
    try:
        _trusting(chain)
    except (ssl.SSLError, ValueError):
        return False
    return True


def _fault(error: ssl.SSLError) -> str:
    match error.reason:
        case "KEY_VALUES_MISMATCH" | "KEY_TYPE_MISMATCH":
            return "is not the key of `cert`"
        case "EE_KEY_TOO_SMALL" | "CA_KEY_TOO_SMALL" | "CA_MD_TOO_WEAK":
            return f"goes with a certificate that is too weak for TLS ({error.reason})"
        case reason:
            return f"cannot be used: {reason or error}" if reason else "holds no private key in PEM form"


class _Nobody:
    """Answers for OpenSSL, which would otherwise ask on the terminal for a key's password."""

    was_asked = False

    def __call__(self) -> bytes:
        self.was_asked = True
        return b""


def _refused_by_clients(context: ssl.SSLContext, chain: bytes) -> str | None:
    """Return why a client that trusts this very certificate would refuse it, found by a handshake in memory."""
    client = _trusting(chain)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = (client.wrap_bio(to_client, to_server), context.wrap_bio(to_server, to_client, server_side=True))
    for end in ends * 3:  # as many flights as a handshake has
        try:
            end.do_handshake()
        except ssl.SSLWantReadError:
            continue
        except ssl.SSLCertVerificationError as error:
            return _CERTIFICATE_PROBLEMS.get(error.verify_code)
        except ssl.SSLError:
            return None
    return None


def _trusting(chain: bytes) -> ssl.SSLContext:
    """Return the context of a client that trusts these certificates.

    Raises:
        ssl.SSLError: they are none.
        ValueError: neither.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    # The file rarely has the root: what it does have is trusted by itself.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.load_verify_locations(cadata=chain.decode("ascii", errors="replace"))
    return context
