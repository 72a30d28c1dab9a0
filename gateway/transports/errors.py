"""Errors of the HTTP transports. Functions return these errors instead of raising them."""

from collections.abc import Mapping
from typing import Final

import msgspec


class HttpError(msgspec.Struct, frozen=True, kw_only=True):
    status: int
    message: str
    headers: Mapping[str, str] = msgspec.field(default_factory=dict)


RETRY: Final = {"Retry-After": "30"}
"""Headers of a response that asks the client to retry later."""
MAX_IN_FLIGHT: Final = 256
"""The maximum number of concurrent requests per session."""
BUSY: Final = HttpError(status=503, message=f"This session has {MAX_IN_FLIGHT} requests in flight", headers=RETRY)
NOT_ACCEPTABLE: Final = HttpError(status=406, message="Accept must allow application/json or text/event-stream")
NO_STREAM_ACCEPTED: Final = HttpError(status=406, message="Accept must allow text/event-stream")
DRAINING: Final = HttpError(status=503, message="The server is shutting down", headers={"Connection": "close"})
OPENERS: Final = frozenset({"subscriptions/listen", "initialize"})
"""The methods that open a session or a subscription. Requests with these methods are rejected during shutdown."""
