"""Limits of one HTTP request and its response."""

from typing import Final

import msgspec

from gateway.transports.write_quota import WriteQuota

WRITE_TIMEOUT_SECONDS: Final = 30.0
"""The timeout of a write to a slow reader."""


class StreamTimeouts(msgspec.Struct, frozen=True, kw_only=True):
    """Timeouts of event streams in seconds, and the quota of unread bytes that they share."""

    keepalive: float
    """The interval between keep-alive comments."""
    write_timeout: float = WRITE_TIMEOUT_SECONDS
    quota: WriteQuota = msgspec.field(default_factory=WriteQuota)


class RequestLimits(msgspec.Struct, frozen=True, kw_only=True):
    max_body: int
    """Bytes."""
    pace: StreamTimeouts
    receive_seconds: float = 30.0
    """The timeout for receiving the body."""
