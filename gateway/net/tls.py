"""Compiles the `tls` setting of connections to TLS contexts."""

import hashlib
import ssl
from functools import lru_cache
from pathlib import Path

from gateway.config.diagnostics.problems import Problems
from gateway.config.models.backends import ClientTls

Trust = ssl.SSLContext | None
"""A TLS context, or None for the default: the authorities of the system, and no client certificate."""


def compile_tls(tls: ClientTls | None, problems: Problems) -> tuple[Trust, Trust]:
    """Return two TLS contexts: one for the configured service, and one for other origins after redirects."""
    if tls is None:
        return None, None
    if tls.key is not None and tls.cert is None:
        problems.at("key").error("requires `cert`")
    # Origins that a redirect leads to use the same authorities, but do not receive the client certificate.
    elsewhere = _trust(ClientTls(ca=tls.ca), problems)
    here = _trust(tls, problems) if tls.cert else elsewhere
    return here, elsewhere


def files_of(tls: ClientTls | None, problems: Problems) -> list[Path]:
    return [] if tls is None else [problems.directory / file for file in (tls.ca, tls.cert, tls.key) if file]


def _trust(tls: ClientTls, problems: Problems) -> Trust:
    files = {name: problems.directory / file for name in ("ca", "cert", "key") if (file := getattr(tls, name))}
    try:
        digest = hashlib.sha256(b"\0".join(name.encode() + path.read_bytes() for name, path in files.items()))
        return _context(digest.digest(), tls, problems.directory)
    except ssl.SSLError as error:
        problems.error(f"{', '.join(files)} cannot be used: {error.reason or error}")
    except OSError as error:
        problems.error(f"cannot read {error.filename}: {error.strerror}")
    return None


# Reuse a context while its files have the same content. Contexts compare by identity, so a new context would open a new
# connection pool. The digest changes if a file is renewed at the same path.
@lru_cache(maxsize=64)
def _context(_digest: bytes, tls: ClientTls, directory: Path) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=directory / tls.ca if tls.ca else None)
    if tls.cert is not None:
        context.load_cert_chain(directory / tls.cert, directory / tls.key if tls.key else None, password=_no_password)
    return context


def _no_password() -> bytes:
    """Return no password. Without a password callback, OpenSSL would prompt on the terminal."""
    return b""
