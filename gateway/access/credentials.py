"""Reads the credential of a request from `Authorization` or `X-API-Key`.

MCP 2026-07-28 basic/authorization, "Access Token Usage": credentials in query strings are ignored, because logs and
histories contain URLs.
"""

import re
from collections.abc import Sequence
from typing import Final

import msgspec

from gateway.access.auth_error import AuthError, invalid_request

_VISIBLE: Final = re.compile(r"[\x21-\x7e]+")
"""API keys can contain any visible ASCII character. RFC 6750 §2.1 allows fewer in tokens."""
_BEARER: Final = "bearer"
_DPOP: Final = "dpop"


class Credential(msgspec.Struct, frozen=True):
    secret: str
    is_bearer: bool
    """Whether the secret can be an access token."""
    is_bound: bool = False

    def __repr__(self) -> str:
        """Omit the secret from tracebacks and logs."""
        return f"Credential(is_bearer={self.is_bearer})"


def read_credential(*, authorization: Sequence[str], api_key: Sequence[str]) -> Credential | AuthError | None:
    """Return the credential in the values of the header fields, or None.

    1. There is at most one credential: 400.
    2. The credential has no spaces: 400.
    3. The scheme is Bearer or DPoP. Other schemes are ignored.
    """
    if len(authorization) + len(api_key) > 1:
        return invalid_request("More than one credential was sent: send one Authorization or X-API-Key header")
    if api_key:
        return _credential(api_key[0].strip(), what="X-API-Key", is_bearer=False)
    if not authorization:
        return None
    scheme, _, rest = authorization[0].strip().partition(" ")
    if not scheme:
        return invalid_request("The `Authorization` header is empty")
    # RFC 9110 §11.1: schemes are case-insensitive.
    if scheme.lower() not in {_BEARER, _DPOP}:
        return None
    return _credential(rest.strip(" "), what="Authorization", is_bearer=True, is_bound=scheme.lower() == _DPOP)


def _credential(text: str, *, what: str, is_bearer: bool, is_bound: bool = False) -> Credential | AuthError:
    if _VISIBLE.fullmatch(text) is None:
        return invalid_request(f"The header {what} must contain one credential without spaces")
    return Credential(text, is_bearer, is_bound)
