"""The caller for whom the gateway sends requests to other servers."""

import msgspec

from gateway.access.credentials import Credential


class Subject(msgspec.Struct, frozen=True):
    key: str | None
    """`Identity.subject_key`, or an empty string for local callers without authentication. None for other callers."""
    access_token: Credential | None = None
    issuer: str = ""
    """The issuer of the access token."""
    is_operator: bool = False
    is_calling: bool = True
    """False for the gateway's own requests with the account of this caller."""
