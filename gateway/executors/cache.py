"""Answers kept for a while, so that the same question need not be asked again. Bounded in bytes; forgets the oldest."""

import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final

import orjson

from gateway.executors.explanation import Explainable, Explanation
from gateway.executors.invocation import Blocks, Executor, Failure, Invocation, Outcome, RawOutput, Value

MAX_BYTES: Final = 64 * 2**20
_OVERHEAD: Final = 1024
"""Bytes that an entry takes beside its data, about."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entry:
    outcome: Outcome
    size: int
    expires: float


class ResponseCache:
    """Keeps successful outcomes until they expire, or until newer ones need the room."""

    def __init__(self, *, max_bytes: int = MAX_BYTES, clock: Callable[[], float] = time.monotonic) -> None:
        self._max_bytes = max_bytes
        self._clock = clock
        self._entries: OrderedDict[Hashable, _Entry] = OrderedDict()
        self._size = 0

    def get(self, key: Hashable) -> Outcome | None:
        entry = self._entries.get(key)
        if entry is None:
            return None
        if entry.expires <= self._clock():
            self._forget(key)
            return None
        self._entries.move_to_end(key)
        return entry.outcome

    def put(self, key: Hashable, outcome: Outcome, *, ttl: timedelta) -> None:
        """Keep `outcome`, unless it is a failure or alone too large."""
        if key in self._entries:
            self._forget(key)
        size = _size_of(outcome)
        if size is None or size > self._max_bytes:
            return
        self._entries[key] = _Entry(outcome=outcome, size=size, expires=self._clock() + ttl.total_seconds())
        self._size += size
        while self._size > self._max_bytes:
            self._forget(next(iter(self._entries)))

    def _forget(self, key: Hashable) -> None:
        self._size -= self._entries.pop(key).size


def _size_of(outcome: Outcome) -> int | None:
    """How many bytes keeping it takes, about; None where it is not kept."""
    match outcome:
        case RawOutput(data=data, variables=variables):
            return len(data) + len(orjson.dumps(dict(variables), default=str)) + _OVERHEAD
        case Value(value=value):
            return len(orjson.dumps(value, default=str)) + _OVERHEAD
        case Blocks(content=content, is_error=False):
            return sum(len(orjson.dumps(dict(block), default=str)) for block in content) + _OVERHEAD
        case Blocks() | Failure():
            return None


@dataclass(frozen=True, slots=True, kw_only=True)
class CachingExecutor:
    """`cache:` of a tool or resource: the same arguments of the same caller are answered once in `ttl`.

    Calls that arrive while the first still runs, run too.
    """

    executor: Executor
    ttl: timedelta
    cache: ResponseCache
    key_prefix: str
    """What tells this definition from all others, and from itself before a reload changed it."""

    def explain(self, invocation: Invocation) -> Explanation:
        if not isinstance(self.executor, Explainable):
            raise TypeError(f"{type(self.executor).__name__} cannot be explained")
        explained = self.executor.explain(invocation)
        return replace(explained, facts={**explained.facts, "cache_seconds": self.ttl.total_seconds()})

    async def execute(self, invocation: Invocation) -> Outcome:
        arguments = orjson.dumps(dict(invocation.arguments), option=orjson.OPT_SORT_KEYS)
        # A digest, because what is kept is counted by its answers, and arguments may be as large as a message.
        key = (self.key_prefix, invocation.caller, hashlib.sha256(arguments).digest())
        outcome = self.cache.get(key)
        if outcome is None:
            outcome = await self.executor.execute(invocation)
            self.cache.put(key, outcome, ttl=self.ttl)
        return outcome
