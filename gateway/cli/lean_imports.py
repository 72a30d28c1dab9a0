"""Keeps libraries from what they do while they are imported and nobody here uses: a seventh of the time to start.

- structlog imports rich where that is installed, for tracebacks that our logs do not have. `dev` imports it later.
- aiohttp makes two TLS contexts, and reads the system's certificates for both. One of them verifies nothing: it is for
  `ssl=False`.
"""

import ssl
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_UNUSED = "rich"


@contextmanager
def lean_imports() -> Iterator[None]:
    """Hold for the imports within the context."""
    read_certificates = ssl.SSLContext.set_default_verify_paths

    def read_if_verifying(context: ssl.SSLContext) -> None:
        if context.verify_mode is not ssl.CERT_NONE:
            read_certificates(context)

    is_known = _UNUSED in sys.modules
    ssl.SSLContext.set_default_verify_paths = read_if_verifying  # type: ignore[method-assign, assignment]
    if not is_known:
        sys.modules[_UNUSED] = None  # type: ignore[assignment]  # the import system's mark of what is not installed
    try:
        yield
    finally:
        ssl.SSLContext.set_default_verify_paths = read_certificates  # type: ignore[method-assign]
        if not is_known:
            del sys.modules[_UNUSED]
