"""Stores outputs that are too long for a result. Only the caller that received an output can read it."""

import asyncio
import base64
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from threading import Lock
from typing import Final, Protocol

import msgspec

from gateway.json_types import JsonObject

MAX_OUTPUT_BYTES: Final = 64 * 2**20
"""The limit in bytes for one output, and for all outputs of one caller together."""
MAX_TOTAL_BYTES: Final = 256 * 2**20
MAX_OUTPUTS_PER_CALLER: Final = 32
TTL_SECONDS: Final = 600.0
_SWEEP_SECONDS: Final = 30.0

SCHEME: Final = "output"


class OutputArchive(Protocol):
    """Persistent storage for outputs. `save` and `remove` do not block and can be called from any thread."""

    async def list(self, now: float) -> Sequence[tuple[str, str, str, float, int]]:
        """Return the URI, caller, media type, expiry and size in bytes of each unexpired output, oldest first."""

    async def read(self, uri: str) -> str | bytes | None: ...
    def save(self, uri: str, contents: str | bytes, *, caller: str, media_type: str, expires: float) -> None: ...
    def remove(self, uri: str) -> None: ...


class _Stored(msgspec.Struct, frozen=True, kw_only=True):
    contents: str | bytes | None
    """None if the contents are only in the archive."""
    media_type: str
    caller: str
    size: int
    expires: float
    is_archived: bool = False


class OutputStore:
    """Keeps outputs under random URIs. Drops the oldest outputs when the store is full."""

    def __init__(self, *, clock: Callable[[], float] = time.time) -> None:
        # Wall-clock time, because the archive outlives the process.
        self._clock = clock
        self._archive: OutputArchive | None = None
        self._outputs: OrderedDict[str, _Stored] = OrderedDict()
        """The outputs by URI, oldest first."""
        self._size = 0
        self._lock = Lock()
        """Protects the store, because large outputs are saved from threads."""

    @property
    def count(self) -> int:
        with self._lock:
            self._drop_expired()
            return len(self._outputs)

    async def expire(self) -> None:
        while True:
            await asyncio.sleep(_SWEEP_SECONDS)
            with self._lock:
                self._drop_expired()

    async def use(self, archive: OutputArchive) -> None:
        """Load the entries of an archive, and also save later outputs in this archive."""
        self._archive = archive
        for uri, caller, media_type, expires, size in await archive.list(self._clock()):
            self._outputs[uri] = _Stored(
                contents=None, media_type=media_type, caller=caller, size=size, expires=expires, is_archived=True
            )
            self._size += size

    def save(self, contents: str | bytes, *, media_type: str, caller: str, seconds: float | None = None) -> str | None:
        """Store contents and return their URI, or None if the contents are too large.

        Only `caller` can read the output. An output with `seconds` has this lifetime and is also archived. Other
        outputs expire after `TTL_SECONDS`.
        """
        size = len(contents.encode()) if isinstance(contents, str) else len(contents)
        if size > MAX_OUTPUT_BYTES:
            return None
        uri = f"{SCHEME}://{secrets.token_hex(16)}"
        with self._lock:
            self._make_room(size, caller)
            expires = self._clock() + (TTL_SECONDS if seconds is None else seconds)
            is_archived = self._archive is not None and seconds is not None
            self._outputs[uri] = _Stored(
                contents=contents,
                media_type=media_type,
                caller=caller,
                size=size,
                expires=expires,
                is_archived=is_archived,
            )
            self._size += size
            if self._archive is not None and is_archived:
                # Save while holding the lock, so that `remove` cannot run before `save`.
                self._archive.save(uri, contents, caller=caller, media_type=media_type, expires=expires)
        return uri

    async def read(self, uri: str, *, caller: str) -> JsonObject | None:
        """Return an item for `ReadResourceResult`, or None if the output is missing or belongs to another caller."""
        with self._lock:
            self._drop_expired()
            output = self._outputs.get(uri)
        # Treat another caller's output like a missing output, so that a leaked URI reveals nothing.
        if output is None or output.caller != caller:
            return None
        contents = output.contents
        if contents is None and self._archive is not None:
            contents = await self._archive.read(uri)
        if contents is None:
            return None
        found = {"uri": uri, "mimeType": output.media_type}
        if isinstance(contents, str):
            return found | {"text": contents}
        return found | {"blob": base64.b64encode(contents).decode("ascii")}

    def _make_room(self, size: int, caller: str) -> None:
        self._drop_expired()
        own = [uri for uri, output in self._outputs.items() if output.caller == caller]
        own_size = size + sum(self._outputs[uri].size for uri in own)
        while own and (len(own) >= MAX_OUTPUTS_PER_CALLER or own_size > MAX_OUTPUT_BYTES):
            own_size -= self._drop(own.pop(0))
        # The loop terminates, because one output is always smaller than MAX_TOTAL_BYTES.
        while self._size + size > MAX_TOTAL_BYTES:
            self._drop(next(iter(self._outputs)))

    def _drop_expired(self) -> None:
        now = self._clock()
        for uri in [uri for uri, output in self._outputs.items() if output.expires <= now]:
            self._drop(uri)

    def _drop(self, uri: str) -> int:
        output = self._outputs.pop(uri)
        self._size -= output.size
        if self._archive is not None and output.is_archived:
            self._archive.remove(uri)
        return output.size
