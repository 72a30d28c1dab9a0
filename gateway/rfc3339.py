"""RFC 3339 timestamps."""

from datetime import UTC, datetime
from typing import Literal


def timestamp(seconds: float, *, timespec: Literal["seconds", "milliseconds"] = "milliseconds") -> str:
    """Format a Unix time in UTC, such as `2025-01-31T12:00:00.000Z`."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec=timespec).replace("+00:00", "Z")
