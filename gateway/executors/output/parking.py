"""Outputs too long for a result, kept for a while for the caller whom they belong to."""

import base64
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock
from typing import Final

from gateway.json_types import JsonObject

MAX_OUTPUT_BYTES: Final = 64 * 2**20
"""Of one output, and of all outputs of one caller together."""
MAX_TOTAL_BYTES: Final = 256 * 2**20
"""Of all callers together."""
MAX_OUTPUTS_PER_CALLER: Final = 32
TTL_SECONDS: Final = 600.0

SCHEME: Final = "output"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parked:
    contents: str | bytes
    media_type: str
    caller: str
    size: int
    expires: float


class ParkedOutputs:
    """Keeps outputs under unguessable URIs. When there is no room, the oldest go."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._parked: OrderedDict[str, _Parked] = OrderedDict()
        """By URI, oldest first."""
        self._size = 0
        self._lock = Lock()
        """Large outputs are shaped, and parked, in threads."""

    @property
    def count(self) -> int:
        """How many are kept."""
        with self._lock:
            self._drop_expired()
            return len(self._parked)

    def park(self, contents: str | bytes, *, media_type: str, caller: str) -> str | None:
        """Keep the contents and return their URI; None if they are too large to be kept."""
        size = len(contents.encode()) if isinstance(contents, str) else len(contents)
        if size > MAX_OUTPUT_BYTES:
            return None
        uri = f"{SCHEME}://{secrets.token_hex(16)}"
        with self._lock:
            self._make_room(size, caller)
            expires = self._clock() + TTL_SECONDS
            self._parked[uri] = _Parked(
                contents=contents, media_type=media_type, caller=caller, size=size, expires=expires
            )
            self._size += size
        return uri

    def read(self, uri: str, *, caller: str) -> JsonObject | None:
        """The contents as in `ReadResourceResult`; None if there are none, or not for this caller."""
        with self._lock:
            self._drop_expired()
            parked = self._parked.get(uri)
        if parked is None or parked.caller != caller:
            return None
        found = {"uri": uri, "mimeType": parked.media_type}
        if isinstance(parked.contents, str):
            return found | {"text": parked.contents}
        return found | {"blob": base64.b64encode(parked.contents).decode("ascii")}

    def _make_room(self, size: int, caller: str) -> None:
        self._drop_expired()
        own = [uri for uri, parked in self._parked.items() if parked.caller == caller]
        own_size = size + sum(self._parked[uri].size for uri in own)
        while own and (len(own) >= MAX_OUTPUTS_PER_CALLER or own_size > MAX_OUTPUT_BYTES):
            own_size -= self._drop(own.pop(0))
        while self._size + size > MAX_TOTAL_BYTES:
            self._drop(next(iter(self._parked)))

    def _drop_expired(self) -> None:
        now = self._clock()
        while self._parked and next(iter(self._parked.values())).expires <= now:
            self._drop(next(iter(self._parked)))

    def _drop(self, uri: str) -> int:
        size = self._parked.pop(uri).size
        self._size -= size
        return size
