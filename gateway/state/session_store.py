"""The interface of what stores that which changes of a legacy session after `initialize`, by the nonce of its id.

The id carries the rest. A record is written when it changes, and with many others when the session was used; never for
a plain call.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Protocol

import msgspec


class SessionRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The changeable part of a session."""

    expires: float
    """Seconds since the epoch at which it ends, unless it is used before."""
    log_level: str | None = None
    is_initialized: bool = False
    subscriptions: frozenset[str] = frozenset()
    """URIs."""
    lists: Mapping[str, str] = msgspec.field(default_factory=dict)
    """The fingerprint of each list, by kind, as the client was told of it last."""
    is_ended: bool = False
    """Whether it was ended before its time, so that its id is good no more."""


NOTHING_BEFORE: Final[Mapping[str, SessionRecord]] = MappingProxyType({})


class SessionStore(Protocol):
    """Records by nonce, wherever they are kept. Those that have expired are forgotten.

    A store that several processes share writes the difference from the record that stood `before`: another process may
    have changed the rest. Without one it writes the whole record.
    """

    @property
    def is_shared(self) -> bool:
        """Whether other processes serve the same sessions at the same time."""

    @property
    def knows_the_past(self) -> bool:
        """Whether a session of an earlier process that has no record here has expired."""

    async def load(self, nonce: str) -> SessionRecord | None: ...

    async def save(self, nonce: str, record: SessionRecord, *, before: SessionRecord | None = None) -> None:
        """Write a record, and return when it is written. One that says that the session ended is never replaced."""

    def save_soon(
        self, records: Mapping[str, SessionRecord], *, before: Mapping[str, SessionRecord] = NOTHING_BEFORE
    ) -> None:
        """Write records, and wait for nothing."""

    def release(self, nonce: str) -> None:
        """Note that this process serves a session no more, which others may."""

    def forget_expired(self) -> None: ...
