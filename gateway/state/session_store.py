"""The `SessionStore` interface for those values of a session that can change, such as subscriptions.

Constant values are part of the signed session id. The key of a record is the nonce in this id. Records are written when
they change, and occasionally when the session is used, but not for every call.
"""

from collections.abc import Mapping
from typing import Protocol

import msgspec


class SessionRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    expires: float
    """Unix time at which the session expires if it is not used again."""
    log_level: str | None = None
    is_initialized: bool = False
    subscriptions: frozenset[str] = frozenset()
    lists: Mapping[str, str] = msgspec.field(default_factory=dict)
    """The last version of each list that the client was notified of. The values are fingerprints."""
    is_ended: bool = False
    """Whether the session was ended, which invalidates its id."""


class SessionStore(Protocol):
    """Stores session records by nonce, until they expire.

    A shared store writes only the differences from the record `before`, because other processes can have changed other
    fields. Without `before`, the store writes the whole record.
    """

    @property
    def is_shared(self) -> bool:
        """Whether several processes serve the same sessions."""

    @property
    def has_all_records(self) -> bool:
        """Whether a missing record proves that the session has expired. False if the store could have lost records."""

    async def load(self, nonce: str) -> SessionRecord | None: ...

    async def save(self, nonce: str, record: SessionRecord, *, before: SessionRecord | None = None) -> None:
        """Write a record and wait for the write. A record that ends the session is never replaced."""

    def save_soon(self, records: Mapping[str, SessionRecord], *, before: Mapping[str, SessionRecord]) -> None: ...

    def release(self, nonce: str) -> None:
        """Called when this process no longer serves a session."""

    def forget_expired(self) -> None: ...
