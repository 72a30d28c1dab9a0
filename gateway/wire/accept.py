"""Parses the `Accept` header (RFC 9110 §12.5.1) for JSON and event streams.

Parsing is lenient, because many clients do not send both types as the specification requires.
"""

from functools import lru_cache
from typing import Final

import msgspec

JSON: Final = "application/json"
EVENT_STREAM: Final = "text/event-stream"


class Accepted(msgspec.Struct, frozen=True, kw_only=True):
    """The media types that a client accepts."""

    json: bool
    event_stream: bool
    names_event_stream: bool
    """Whether event streams are named explicitly, not only by a wildcard."""


# Cache results, because clients repeat their header in each request. `maxsize` is for clients that vary the header.
@lru_cache(maxsize=64)
def parse_accept(field: str | None) -> Accepted:
    """Parse an `Accept` header. A missing header accepts everything."""
    if field is None or not field.strip():
        return Accepted(json=True, event_stream=True, names_event_stream=False)
    ranges = dict(_range(item) for item in field.lower().split(","))

    def takes(media_type: str) -> bool:
        family = media_type.partition("/")[0] + "/*"
        # The most specific range applies: `*/*, application/json;q=0` refuses JSON.
        return next((ranges[name] for name in (media_type, family, "*/*") if name in ranges), False)

    return Accepted(
        json=takes(JSON), event_stream=takes(EVENT_STREAM), names_event_stream=ranges.get(EVENT_STREAM, False)
    )


def _range(item: str) -> tuple[str, bool]:
    """Return a media range, and whether the client accepts the range (a weight other than zero)."""
    name, *parameters = (part.strip() for part in item.split(";"))
    weights = [value.strip() for key, _, value in (part.partition("=") for part in parameters) if key.strip() == "q"]
    return name, not (weights and _is_zero(weights[0]))


def _is_zero(weight: str) -> bool:
    try:
        return float(weight) == 0
    except ValueError:
        # RFC 9110 §12.4.2: a weight is a number from 0 to 1. Invalid weights are ignored.
        return False
