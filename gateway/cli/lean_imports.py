"""Keeps libraries from what they do while they are imported and nobody here uses: a seventh of the time to start.

- structlog imports rich where that is installed, for tracebacks that our logs do not have. `dev` imports it later.
- aiohttp makes two TLS contexts, and reads the system's certificates for both: four MiB. One context verifies nothing
  (it is for `ssl=False`), and the other is told of them at its first connection.
"""

import ssl
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_UNUSED = "rich"


@contextmanager
def lean_imports() -> Iterator[None]:
    """Hold for the imports within the context."""
    read_certificates = ssl.SSLContext.set_default_verify_paths
    is_known = _UNUSED in sys.modules
    ssl.SSLContext.set_default_verify_paths = _read_later  # type: ignore[method-assign, assignment]
    if not is_known:
        sys.modules[_UNUSED] = None  # type: ignore[assignment]  # the import system's mark of what is not installed
    try:
        yield
    finally:
        ssl.SSLContext.set_default_verify_paths = read_certificates  # type: ignore[method-assign]
        if not is_known:
            del sys.modules[_UNUSED]


class _LateTrust(ssl.SSLContext):
    """A context that reads the system's certificates before its first connection, of which asyncio tells `wrap_bio`."""

    def wrap_bio(self, *arguments: Any, **options: Any) -> ssl.SSLObject:
        self.__class__ = ssl.SSLContext  # type: ignore[assignment]
        self.set_default_verify_paths()
        return self.wrap_bio(*arguments, **options)


def _read_later(context: ssl.SSLContext) -> None:
    if context.verify_mode is not ssl.CERT_NONE:
        context.__class__ = _LateTrust
