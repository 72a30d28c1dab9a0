"""The limits of one HTTP request and of its response. Values only."""

from typing import Final

import msgspec

from gateway.transports.write_quota import WriteQuota

WRITE_TIMEOUT_SECONDS: Final = 30.0
"""How long a write may wait for the reader to make room."""


class StreamTimeouts(msgspec.Struct, frozen=True, kw_only=True):
    """The times of event streams, in seconds, and the quota of unread bytes that all of them share."""

    keepalive: float
    """Between two comments that keep the connection alive."""
    write_timeout: float = WRITE_TIMEOUT_SECONDS
    quota: WriteQuota = msgspec.field(default_factory=WriteQuota)


class RequestLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of one request to an MCP endpoint."""

    max_body: int
    """Bytes."""
    pace: StreamTimeouts
    receive_seconds: float = 30.0
    """How long its body may take to arrive."""
