"""The response cache: lifetime, keys and size."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta

import pytest

from gateway.errors import ExecutionError
from gateway.executors.cache import MAX_BYTES, CachingExecutor, ResponseCache
from gateway.executors.invocation import Blocks, Explanation, Failure, Invocation, Outcome, RawOutput, Value
from gateway.executors.python.results import outcome_of
from gateway.language.files.file_argument import FileArgument
from tests.executors.recording import make_invocation

MINUTE = timedelta(minutes=1)


@dataclass
class Clock:
    now: float = 100.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Answering:
    """An executor with prepared outcomes. The last one is repeated."""

    answers: list[Outcome | ExecutionError]
    calls: list[Invocation] = field(default_factory=list)

    def explain(self, invocation: Invocation) -> Explanation:
        return Explanation(does="answers", facts={"arguments": len(invocation.arguments)})

    async def execute(self, invocation: Invocation) -> Outcome:
        self.calls.append(invocation)
        await asyncio.sleep(0)
        answer = self.answers[min(len(self.calls), len(self.answers)) - 1]
        if isinstance(answer, ExecutionError):
            raise answer
        return answer


def caching(
    executor: Answering,
    cache: ResponseCache,
    prefix: str = "tools.x",
    clock: Callable[[], float] = time.monotonic,
) -> CachingExecutor:
    return CachingExecutor(executor=executor, ttl=MINUTE, cache=cache, key_prefix=prefix, clock=clock)


async def test_repeated_call_is_cached_until_it_expires() -> None:
    clock, executor = Clock(), Answering([Value(value=1), Value(value=2)])
    cached = caching(executor, ResponseCache(MAX_BYTES, clock=clock), clock=clock)
    assert await cached.execute(make_invocation({"a": 1, "b": 2})) == Value(value=1)
    assert await cached.execute(make_invocation({"b": 2, "a": 1})) == Value(value=1)
    clock.now += 60
    assert await cached.execute(make_invocation({"a": 1, "b": 2})) == Value(value=2)


async def test_cache_is_bounded_by_the_json_of_values() -> None:
    executor = Answering([outcome_of([[1.5]] * 10_000)])
    cached = caching(executor, ResponseCache(50_000))
    for _ in range(2):
        await cached.execute(make_invocation({}))
    assert len(executor.calls) == 2


async def test_cache_distinguishes_arguments_callers_rights_and_definitions() -> None:
    executor, cache = Answering([Value(value=1)]), ResponseCache(MAX_BYTES)
    await caching(executor, cache).execute(make_invocation({"a": 1}))
    await caching(executor, cache).execute(make_invocation({"a": "1"}))
    await caching(executor, cache).execute(make_invocation({"a": 1}, caller="another"))
    await caching(executor, cache).execute(make_invocation({"a": 1}, rights=frozenset({"ops"})))
    await caching(executor, cache, prefix="tools.y").execute(make_invocation({"a": 1}))
    assert len(executor.calls) == 5


async def test_key_contains_the_contents_of_files() -> None:
    executor, cache = Answering([Value(value=1)]), ResponseCache(MAX_BYTES)
    for data in (b"a", b"a", b"b"):
        await caching(executor, cache).execute(make_invocation({"file": FileArgument(data)}))
    assert len(executor.calls) == 2


async def test_explanation_contains_the_lifetime() -> None:
    explanation = caching(Answering([]), ResponseCache(MAX_BYTES)).explain(make_invocation({"a": 1}))
    assert explanation.facts == {"arguments": 1, "cache_seconds": 60}


@pytest.mark.parametrize("failed", [Failure(text="no"), Blocks(content=(), is_error=True), ExecutionError("no")])
async def test_failure_is_never_cached(failed: Outcome | ExecutionError) -> None:
    executor = Answering([failed, Value(value=1)])
    cached = caching(executor, ResponseCache(MAX_BYTES))
    try:
        assert await cached.execute(make_invocation()) == failed
    except ExecutionError as error:
        assert error is failed  # noqa: PT017 - either way of failing
    assert await cached.execute(make_invocation()) == Value(value=1)


async def test_concurrent_identical_calls_both_run() -> None:
    executor = Answering([Value(value=1)])
    cached = caching(executor, ResponseCache(MAX_BYTES))
    await asyncio.gather(cached.execute(make_invocation()), cached.execute(make_invocation()))
    assert len(executor.calls) == 2


async def test_outcomes_count_with_their_size() -> None:
    cache = ResponseCache(10_000)
    for name, size in (("a", 2000), ("b", 2000), ("c", 2000), ("d", 20_000)):
        outcome = RawOutput(data=b"x" * size, variables={"stderr": "x" * 2000})
        await caching(Answering([outcome]), cache).execute(make_invocation({"name": name}))
    assert len(cache) == 1


async def test_large_arguments_are_not_stored_with_the_result() -> None:
    executor, cache = Answering([Value(value=1)]), ResponseCache(MAX_BYTES)
    for end in "aab":
        await caching(executor, cache).execute(make_invocation({"text": "x" * 1_000_000 + end}))
    assert len(executor.calls) == 2
    assert all(len(str(key)) < 1000 for key, _ in cache.items())
