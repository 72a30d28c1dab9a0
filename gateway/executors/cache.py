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
"""The overhead in bytes that is counted for each entry, in addition to the size of the outcome."""


ResponseCache = BoundedMap[Hashable, Outcome]


def _key_of_file(value: object) -> JsonObject:
    if isinstance(value, FileArgument):
        return value.key
    raise TypeError


class CachingExecutor(msgspec.Struct, frozen=True, kw_only=True):
    """Serves outcomes from a cache. Concurrent calls with the same key all run the backend.

    By default, a key contains the arguments, the caller and the caller's access rights. If set, `key_of` replaces these
    three parts. Every key also contains `key_prefix` and the members of `caller` that templates use.
    """

    executor: Executor
    ttl: timedelta
    cache: ResponseCache
    key_prefix: str
    """Identifies the definition, so that a reload that changes the definition invalidates its entries."""
    key_of: Callable[[Invocation], Awaitable[bytes]] | None = None
    """Computes a key from an invocation. Different callers share an outcome if their keys are equal."""
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
