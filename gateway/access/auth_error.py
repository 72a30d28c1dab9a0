"""Authentication errors, and the header fields that tell clients how to proceed (RFC 6750 §3, RFC 9449 §7.1)."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from gateway.access.jose import ALGORITHMS

_UNQUOTABLE: Final = re.compile(r"[^\x20\x21\x23-\x5b\x5d-\x7e]")
"""Characters that RFC 6750 §3 does not allow in `error_description`."""


class Challenge(msgspec.Struct, frozen=True, kw_only=True):
    """Parameters of the `WWW-Authenticate` header that all errors of one path share."""

    metadata_url: str | None = None
    """URL of the protected resource metadata (RFC 9728 §5.1)."""
    scopes: Sequence[str] = ()
    """The required scopes: those of the server and those of the requested operation."""


NO_CHALLENGE: Final = Challenge()


class AuthError(msgspec.Struct, frozen=True, kw_only=True):
    status: int
    message: str
    """Body of the response, which must not quote the credential."""
    error: str | None = None
    """Error code of RFC 6750 §3.1. None if no credential was sent, or the client is not at fault."""
    scopes: Sequence[str] = ()
    """Scopes that the operation requires, in addition to `Challenge.scopes`."""
    retry_after: int | None = None
    """Seconds after which the client can retry."""
    is_for_proof: bool = False
    """Whether the client must send a DPoP proof (RFC 9449 §7.1)."""
    nonce: str | None = None

    def headers(self, challenge: Challenge) -> Mapping[str, str]:
        if self.retry_after is not None:
            # No challenge: the token can be valid, so the client should keep it.
            return {"Retry-After": str(self.retry_after)}
        # List all scopes, because clients request exactly the scopes of the challenge.
        scopes = dict.fromkeys([*challenge.scopes, *self.scopes])
        parameters = {
            "error": self.error,
            "error_description": None if self.error is None else _UNQUOTABLE.sub("'", self.message),
            "scope": None if self.status == 400 else " ".join(scopes),
            "resource_metadata": challenge.metadata_url,
        }
        scheme = "Bearer"
        if self.is_for_proof:
            scheme, parameters = "DPoP", {**parameters, "algs": " ".join(ALGORITHMS)}
        given = ", ".join(f'{name}="{value}"' for name, value in parameters.items() if value)
        nonce = {} if self.nonce is None else {"DPoP-Nonce": self.nonce}
        return {"WWW-Authenticate": f"{scheme} {given}" if given else scheme, **nonce}


def invalid_request(message: str) -> AuthError:
    """Return the error for a malformed credential, or for several credentials (RFC 6750 §3.1)."""
    return AuthError(status=400, error="invalid_request", message=message)


def missing_credentials() -> AuthError:
    """Return the error for a request without a credential. The error has no error code (RFC 6750 §3.1)."""
    return AuthError(status=401, message="Authentication is required: send `Authorization: Bearer …`")


def invalid_token(message: str) -> AuthError:
    return AuthError(status=401, error="invalid_token", message=message)


def insufficient_scope(scopes: Iterable[str]) -> AuthError:
    listed = sorted(scopes)
    message = f"This request requires the scope{'s' if len(listed) > 1 else ''} {' '.join(listed)}"
    return AuthError(status=403, error="insufficient_scope", message=message, scopes=listed)


def temporarily_unavailable(message: str, *, retry_after: int) -> AuthError:
    """Return the error for a credential that cannot be verified at the moment. `retry_after` is in seconds."""
    return AuthError(status=503, message=message, retry_after=retry_after)
