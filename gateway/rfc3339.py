"""Writes times as RFC 3339 has them."""

from datetime import UTC, datetime


def timestamp(seconds: float) -> str:
    """Return a Unix time in UTC, to the millisecond: `2025-01-31T12:00:00.000Z`."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
