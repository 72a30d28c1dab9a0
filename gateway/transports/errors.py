"""HTTP errors as values: the code that refuses a request returns one, and `response.refuse` answers with it."""

from collections.abc import Mapping
from typing import Final

import msgspec


class HttpError(msgspec.Struct, frozen=True, kw_only=True):
    status: int
    message: str
    headers: Mapping[str, str] = msgspec.field(default_factory=dict)


RETRY: Final = {"Retry-After": "30"}
"""For a client that was refused because a quota is used up."""
MAX_IN_FLIGHT: Final = 256
"""Requests of one session. Its client may send more once some are answered."""
BUSY: Final = HttpError(status=503, message=f"{MAX_IN_FLIGHT} requests of this session are running", headers=RETRY)
NOT_ACCEPTABLE: Final = HttpError(status=406, message="Accept must allow application/json or text/event-stream")
NO_STREAM_ACCEPTED: Final = HttpError(status=406, message="Accept must allow text/event-stream")
DRAINING: Final = HttpError(status=503, message="The server is about to stop", headers={"Connection": "close"})
OPENERS: Final = frozenset({"subscriptions/listen", "initialize"})
"""Requests that begin something which would have to be ended again. None is taken while the daemon stops."""
