"""An in-memory cache of successful outcomes (`cache:`). A full cache evicts its least recently used entries."""

import hashlib
import time
from collections.abc import Awaitable, Callable, Hashable
from datetime import timedelta
from typing import Final

import msgspec
import orjson
from msgspec.structs import replace

from gateway import exact_json
from gateway.bounded_map import BoundedMap
from gateway.executors.invocation import (
    Blocks,
    Executor,
    Explanation,
    Failure,
    Invocation,
    Outcome,
    RawOutput,
    Relayed,
    text_size,
)
from gateway.json_types import JsonObject
from gateway.language.files.file_argument import FileArgument

MAX_BYTES: Final = 64 * 2**20
_OVERHEAD: Final = 1024
"""Estimated memory in bytes of an entry, in addition to its outcome."""


ResponseCache = BoundedMap[Hashable, Outcome]


def _key_of_file(value: object) -> JsonObject:
    if isinstance(value, FileArgument):
        return value.key
    raise TypeError


class CachingExecutor(msgspec.Struct, frozen=True, kw_only=True):
    """Returns a cached outcome, or runs the backend and caches its outcome.

    A key contains the arguments, the caller and the caller's access rights, or the result of `key_of` if set. Every key
    also contains `key_prefix` and the values of `caller` that templates use. Concurrent calls with the same key all run
    the backend.
    """

    executor: Executor
    ttl: timedelta
    cache: ResponseCache
    key_prefix: str
    """Identifies the tool's or resource's definition, so that entries are not used after the definition changes."""
    key_of: Callable[[Invocation], Awaitable[bytes]] | None = None
    """Computes a part of the key. Callers share outcomes if their keys are equal."""
    clock: Callable[[], float] = time.monotonic

    def explain(self, invocation: Invocation) -> Explanation:
        explained = self.executor.explain(invocation)
        return replace(explained, facts={**explained.facts, "cache_seconds": self.ttl.total_seconds()})

    async def execute(self, invocation: Invocation) -> Outcome:
        key = (self.key_prefix, await self._key_of(invocation), invocation.caller_values)
        outcome = self.cache.get(key)
        if outcome is None:
            outcome = await self.executor.execute(invocation)
            if not (isinstance(outcome, Failure) or (isinstance(outcome, Blocks | Relayed) and outcome.is_error)):
                expires = self.clock() + self.ttl.total_seconds()
                variables = text_size(outcome.variables) if isinstance(outcome, RawOutput) else 0
                self.cache.put(key, outcome, expires=expires, cost=outcome.size + variables + _OVERHEAD)
        return outcome

    async def _key_of(self, invocation: Invocation) -> Hashable:
        if self.key_of is not None:
            return await self.key_of(invocation)
        arguments = exact_json.dumps(dict(invocation.arguments), option=orjson.OPT_SORT_KEYS, default=_key_of_file)
        # Use a digest of the arguments, because the cache does not count the size of keys.
        return invocation.call.caller.owner_key, invocation.call.rights, hashlib.sha256(arguments).digest()
