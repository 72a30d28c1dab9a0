"""Limits of one HTTP request and its response."""

from typing import Final

import msgspec

from gateway.transports.quota import WriteQuota

WRITE_TIMEOUT_SECONDS: Final = 30.0
"""The timeout of a write to a slow reader."""


class RequestLimits(msgspec.Struct, frozen=True, kw_only=True):
    keepalive: float
    """The interval between keep-alive comments of event streams, in seconds."""
    max_body: int = 0
    """Bytes."""
    receive_seconds: float = 30.0
    """The timeout for receiving the body."""
    write_timeout: float = WRITE_TIMEOUT_SECONDS
    quota: WriteQuota = msgspec.field(default_factory=WriteQuota)
    """The quota of response bytes that wait for their readers."""
