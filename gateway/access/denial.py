"""Why a request was not let in, and how a client is told so that it can mend it (RFC 6750 §3). Pure."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

_UNQUOTABLE: Final = re.compile(r"[^\x20\x21\x23-\x5b\x5d-\x7e]")
"""What `error_description` may not hold: RFC 6750 §3 leaves out the quote and the backslash."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """What the client of a request needs to know to be let in."""

    metadata_url: str | None = None
    """Where it learns which authorization server to ask (RFC 9728); None where there is none."""
    scopes: Sequence[str] = ()
    """That every token must have, and what was asked for beside."""


NO_ENTRY: Final = Entry()


@dataclass(frozen=True, slots=True, kw_only=True)
class Denial:
    """One refusal."""

    status: int
    message: str
    """For whoever reads the response; holds nothing of what was sent as a credential."""
    error: str | None = None
    """RFC 6750 §3.1; None where nothing was presented, or where it is no fault of the client."""
    scopes: Sequence[str] = ()
    """What would be needed beside those that every token must have."""
    retry_after: int | None = None
    """Seconds."""

    def fields(self, entry: Entry) -> Mapping[str, str]:
        """Header fields of the response."""
        if self.retry_after is not None:
            return {"Retry-After": str(self.retry_after)}
        # All scopes of the operation at once: a client asks for what stands here and nothing else.
        scopes = dict.fromkeys([*entry.scopes, *self.scopes])
        parameters = {
            "error": self.error,
            "error_description": None if self.error is None else _UNQUOTABLE.sub("'", self.message),
            "scope": None if self.status == 400 else " ".join(scopes),
            "resource_metadata": entry.metadata_url,
        }
        given = ", ".join(f'{name}="{value}"' for name, value in parameters.items() if value)
        return {"WWW-Authenticate": f"Bearer {given}" if given else "Bearer"}


def malformed(message: str) -> Denial:
    """What was sent cannot be a credential, or is more than one."""
    return Denial(status=400, error="invalid_request", message=message)


def missing() -> Denial:
    """Nothing was presented, which is not an error by itself (RFC 6750 §3.1)."""
    return Denial(status=401, message="Authentication is required: send `Authorization: Bearer …`")


def invalid(message: str) -> Denial:
    """The credential is none of ours, or no longer good."""
    return Denial(status=401, error="invalid_token", message=message)


def insufficient(scopes: Iterable[str]) -> Denial:
    """The caller is known, and needs these scopes."""
    listed = sorted(scopes)
    message = f"This needs the scope{'s' if len(listed) > 1 else ''} {' '.join(listed)}"
    return Denial(status=403, error="insufficient_scope", message=message, scopes=listed)


def unavailable(message: str, *, retry_after: int) -> Denial:
    """Whether the credential is good cannot be told at the moment."""
    return Denial(status=503, message=message, retry_after=retry_after)
