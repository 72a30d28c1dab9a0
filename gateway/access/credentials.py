"""What a request presents to say who sends it: `Authorization: Bearer`, or `X-API-Key`. Pure; judges the form alone.

A credential in the query string is never read (MCP 2026-07-28 basic/authorization, "Access Token Usage"): URLs end up
in logs and histories.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from gateway.access.denial import Denial, malformed

_VISIBLE: Final = re.compile(r"[\x21-\x7e]+")
"""RFC 6750 §2.1 allows less; a key that an operator chose may hold more."""
_BEARER: Final = "bearer"


@dataclass(frozen=True, slots=True)
class Credential:
    """One secret that was sent."""

    secret: str
    is_bearer: bool
    """Whether it may be an access token as well as a key."""

    def __repr__(self) -> str:
        """Hide the secret, wherever this may be shown."""
        return f"Credential(is_bearer={self.is_bearer})"


def read_credential(*, authorization: Sequence[str], api_key: Sequence[str]) -> Credential | Denial | None:
    """The credential among the values of the two header fields; None if there is none of ours.

    1. there is one at the most: 400, since nobody could say which of two counts
    2. it has a scheme and one word, or for a key one word: 400
    3. the scheme is Bearer; another one is for somebody else, and as good as none
    """
    if len(authorization) + len(api_key) > 1:
        return malformed("More than one credential was sent: Authorization and X-API-Key take one, and together one")
    if api_key:
        return _credential(api_key[0].strip(), what="X-API-Key", is_bearer=False)
    if not authorization:
        return None
    scheme, _, rest = authorization[0].strip().partition(" ")
    if not scheme:
        return malformed("The header Authorization is empty")
    if scheme.lower() != _BEARER:
        return None
    return _credential(rest.strip(" "), what="Authorization", is_bearer=True)


def _credential(text: str, *, what: str, is_bearer: bool) -> Credential | Denial:
    if _VISIBLE.fullmatch(text) is None:
        return malformed(f"The header {what} holds no credential, or more than one word")
    return Credential(text, is_bearer)
