"""TLS contexts for connections: `tls:` compiled from its files when the configuration is loaded."""

import hashlib
import ssl
from functools import lru_cache
from pathlib import Path

import msgspec

from gateway.config.diagnostics.problems import Problems
from gateway.config.machine_facts import content_digest
from gateway.config.models.backends import ClientTls


class ClientIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """The TLS context for the connection's own origin, and the one for origins that it redirects to."""

    here: ssl.SSLContext | None = None
    """None is the system's trust and no certificate of ours."""
    elsewhere: ssl.SSLContext | None = None
    """The same trust, and no certificate of ours."""


def compile_tls(tls: ClientTls | None, problems: Problems) -> ClientIdentity:
    """Load the files; what is wrong with them goes to the problems."""
    if tls is None:
        return ClientIdentity()
    if tls.key is not None and tls.cert is None:
        problems.at("key").error("goes with `cert`")
    # An origin that a redirect chose must not learn who this client is.
    elsewhere = _trust(tls.ca, None, None, problems) if tls.ca else None
    here = _trust(tls.ca, tls.cert, tls.key, problems) if tls.cert else elsewhere
    return ClientIdentity(here=here, elsewhere=elsewhere)


def files_of(tls: ClientTls | None, problems: Problems) -> list[Path]:
    """Return the files that a `tls:` names: a renewed certificate is another configuration."""
    return [] if tls is None else [problems.directory / file for file in (tls.ca, tls.cert, tls.key) if file]


def _trust(ca: str | None, cert: str | None, key: str | None, problems: Problems) -> ssl.SSLContext | None:
    paths = {name: problems.directory / file for name, file in (("ca", ca), ("cert", cert), ("key", key)) if file}
    for path in paths.values():
        content_digest(path)  # a renewed certificate is another configuration
    try:
        digest = hashlib.sha256(b"\0".join(name.encode() + path.read_bytes() for name, path in paths.items()))
        return _context(digest.digest(), **paths)
    except ssl.SSLError as error:
        problems.error(f"{', '.join(paths)} cannot be used: {error.reason or error}")
    except OSError as error:
        problems.error(f"cannot read {error.filename}: {error.strerror}")
    return None


# Contexts compare by identity: one for the same bytes, so that a reload opens no other pool. A renewed file has the
# same path.
@lru_cache(maxsize=64)
def _context(
    _digest: bytes, ca: Path | None = None, cert: Path | None = None, key: Path | None = None
) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=ca)
    if cert is not None:
        context.load_cert_chain(cert, key, password=_no_password)
    return context


def _no_password() -> bytes:
    """Answer for OpenSSL, which would otherwise ask on the terminal: encrypted keys cannot be used."""
    return b""
