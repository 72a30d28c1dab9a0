"""Stores outputs that are too long for a result, for a time, each for the caller that it belongs to."""

import base64
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from threading import Lock
from typing import Final

import msgspec

from gateway.json_types import JsonObject

MAX_OUTPUT_BYTES: Final = 64 * 2**20
"""The limit of one output, and of all outputs of one caller together."""
MAX_TOTAL_BYTES: Final = 256 * 2**20
"""The limit of all callers together."""
MAX_OUTPUTS_PER_CALLER: Final = 32
TTL_SECONDS: Final = 600.0

SCHEME: Final = "output"


class _Stored(msgspec.Struct, frozen=True, kw_only=True):
    contents: str | bytes
    media_type: str
    caller: str
    size: int
    expires: float


class OutputStore:
    """Keeps outputs under unguessable URIs. When there is no room, the oldest go."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._outputs: OrderedDict[str, _Stored] = OrderedDict()
        """By URI, oldest first."""
        self._size = 0
        self._lock = Lock()
        """Large outputs are shaped, and saved, in threads."""

    @property
    def count(self) -> int:
        """The number of stored outputs."""
        with self._lock:
            self._drop_expired()
            return len(self._outputs)

    def save(self, contents: str | bytes, *, media_type: str, caller: str, seconds: float = TTL_SECONDS) -> str | None:
        """Keep the contents for a time and return their URI; None if they are too large to be kept."""
        size = len(contents.encode()) if isinstance(contents, str) else len(contents)
        if size > MAX_OUTPUT_BYTES:
            return None
        uri = f"{SCHEME}://{secrets.token_hex(16)}"
        with self._lock:
            self._make_room(size, caller)
            expires = self._clock() + seconds
            self._outputs[uri] = _Stored(
                contents=contents, media_type=media_type, caller=caller, size=size, expires=expires
            )
            self._size += size
        return uri

    def read(self, uri: str, *, caller: str) -> JsonObject | None:
        """The contents as in `ReadResourceResult`; None if there are none, or not for this caller."""
        with self._lock:
            self._drop_expired()
            output = self._outputs.get(uri)
        if output is None or output.caller != caller:
            return None
        found = {"uri": uri, "mimeType": output.media_type}
        if isinstance(output.contents, str):
            return found | {"text": output.contents}
        return found | {"blob": base64.b64encode(output.contents).decode("ascii")}

    def _make_room(self, size: int, caller: str) -> None:
        self._drop_expired()
        own = [uri for uri, output in self._outputs.items() if output.caller == caller]
        own_size = size + sum(self._outputs[uri].size for uri in own)
        while own and (len(own) >= MAX_OUTPUTS_PER_CALLER or own_size > MAX_OUTPUT_BYTES):
            own_size -= self._drop(own.pop(0))
        while self._size + size > MAX_TOTAL_BYTES:
            self._drop(next(iter(self._outputs)))

    def _drop_expired(self) -> None:
        now = self._clock()
        for uri in [uri for uri, output in self._outputs.items() if output.expires <= now]:
            self._drop(uri)

    def _drop(self, uri: str) -> int:
        size = self._outputs.pop(uri).size
        self._size -= size
        return size
