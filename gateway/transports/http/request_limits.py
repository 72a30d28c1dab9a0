"""Limits of one HTTP request and its response."""

from typing import Final

import msgspec

from gateway.transports.write_quota import WriteQuota

WRITE_TIMEOUT_SECONDS: Final = 30.0
"""How long a write waits for a slow reader."""


class StreamTimeouts(msgspec.Struct, frozen=True, kw_only=True):
    """Timeouts of event streams in seconds, and the quota of unread bytes that all streams share."""

    keepalive: float
    """The interval between two keep-alive comments."""
    write_timeout: float = WRITE_TIMEOUT_SECONDS
    quota: WriteQuota = msgspec.field(default_factory=WriteQuota)


class RequestLimits(msgspec.Struct, frozen=True, kw_only=True):
    max_body: int
    """Bytes."""
    pace: StreamTimeouts
    receive_seconds: float = 30.0
    """The time limit for receiving the body."""
