"""Keeps libraries from what they do while they are imported and nobody here uses: a seventh of the time to start.

- structlog imports rich where that is installed, for tracebacks that our logs do not have. `dev` imports it later.
- aiohttp makes two TLS contexts, and reads the system's certificates for both: four MiB. They are told of them at their
  first connection, if they verify anything.
"""

import ssl
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType
from typing import Any

_UNUSED = "rich"
_READ_CERTIFICATES = ssl.SSLContext.set_default_verify_paths


@contextmanager
def lean_imports() -> Iterator[None]:
    """Hold for the imports within the context, at the start of the process."""
    is_known = _UNUSED in sys.modules
    if not is_known:
        sys.modules[_UNUSED] = None  # type: ignore[assignment]  # the import system's mark of what is not installed
    try:
        with _certificates_later():
            yield
    finally:
        if not is_known:
            # Were the mark to stay, `dev` would find no rich either.
            del sys.modules[_UNUSED]


def import_lean(name: str) -> ModuleType:
    """Import a module that may import aiohttp, at any time and in any thread."""
    if name in sys.modules:
        # Not from `sys.modules`, which has a module before another thread has finished its import.
        return import_module(name)
    with _certificates_later():
        return import_module(name)


@contextmanager
def _certificates_later() -> Iterator[None]:
    ssl.SSLContext.set_default_verify_paths = _read_later  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        # Another thread may still be within: its contexts then read the certificates at once, which costs time only.
        ssl.SSLContext.set_default_verify_paths = _READ_CERTIFICATES  # type: ignore[method-assign]


class _LateTrust(ssl.SSLContext):
    """A context that reads the system's certificates before its first connection for which it verifies something."""

    def wrap_bio(self, *arguments: Any, **options: Any) -> ssl.SSLObject:
        self._read()
        return ssl.SSLContext.wrap_bio(self, *arguments, **options)

    def wrap_socket(self, *arguments: Any, **options: Any) -> ssl.SSLSocket:
        self._read()
        return ssl.SSLContext.wrap_socket(self, *arguments, **options)

    def _read(self) -> None:
        if self.verify_mode is not ssl.CERT_NONE and self.__class__ is _LateTrust:
            _READ_CERTIFICATES(self)
            self.__class__ = ssl.SSLContext  # type: ignore[assignment]


def _read_later(context: ssl.SSLContext) -> None:
    if type(context) is ssl.SSLContext:
        context.__class__ = _LateTrust
    else:  # a class of somebody else's, made while another thread imports
        _READ_CERTIFICATES(context)
