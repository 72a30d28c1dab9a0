"""Moments as the API has them: RFC 3339, in UTC."""

from datetime import UTC, datetime


def moment(seconds: float) -> str:
    """Return a Unix time, to the millisecond."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
