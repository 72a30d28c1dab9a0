"""Authentication errors, and the response fields that tell a client how to mend them (RFC 6750 §3). Pure."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from gateway.access.jose import ALGORITHMS

_UNQUOTABLE: Final = re.compile(r"[^\x20\x21\x23-\x5b\x5d-\x7e]")
"""Characters that `error_description` may not contain: RFC 6750 §3 excludes the quote and the backslash."""


class Challenge(msgspec.Struct, frozen=True, kw_only=True):
    """The parameters of a `WWW-Authenticate` challenge that are the same for every error of a path."""

    metadata_url: str | None = None
    """The document that names the authorization server (RFC 9728 §5.1); None where there is none."""
    scopes: Sequence[str] = ()
    """The scopes that every token must have, and those that the operation asks for."""


NO_CHALLENGE: Final = Challenge()


class AuthError(msgspec.Struct, frozen=True, kw_only=True):
    """An authentication error, as it becomes a response."""

    status: int
    message: str
    """The body of the response. It quotes nothing of the credential."""
    error: str | None = None
    """The error code of RFC 6750 §3.1; None without a credential, or where the client is not at fault."""
    scopes: Sequence[str] = ()
    """The scopes that are missing, beside those that every token must have."""
    retry_after: int | None = None
    """Seconds."""
    is_for_proof: bool = False
    """Whether the client must send a DPoP proof (RFC 9449 §7.1)."""
    nonce: str | None = None
    """The nonce for the next DPoP proof (RFC 9449 §9)."""

    def headers(self, challenge: Challenge) -> Mapping[str, str]:
        """Return the header fields of the response."""
        if self.retry_after is not None:
            # No challenge: it would tell the client to get another token, and this one may be good.
            return {"Retry-After": str(self.retry_after)}
        # All scopes of the operation at once: clients request exactly the scopes of the challenge.
        scopes = dict.fromkeys([*challenge.scopes, *self.scopes])
        parameters = {
            "error": self.error,
            "error_description": None if self.error is None else _UNQUOTABLE.sub("'", self.message),
            # No scope would mend a malformed request.
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
    """Make the error for a malformed credential, or for more than one (RFC 6750 §3.1)."""
    return AuthError(status=400, error="invalid_request", message=message)


def missing_credentials() -> AuthError:
    """Make the error for a request without a credential; it has no error code (RFC 6750 §3.1)."""
    return AuthError(status=401, message="Authentication is required: send `Authorization: Bearer …`")


def invalid_token(message: str) -> AuthError:
    """Make the error for a credential that is unknown, expired or otherwise invalid."""
    return AuthError(status=401, error="invalid_token", message=message)


def insufficient_scope(scopes: Iterable[str]) -> AuthError:
    """Make the error for an authenticated caller that lacks scopes."""
    listed = sorted(scopes)
    message = f"This needs the scope{'s' if len(listed) > 1 else ''} {' '.join(listed)}"
    return AuthError(status=403, error="insufficient_scope", message=message, scopes=listed)


def temporarily_unavailable(message: str, *, retry_after: int) -> AuthError:
    """Make the error for a credential that cannot be verified at the moment."""
    return AuthError(status=503, message=message, retry_after=retry_after)
