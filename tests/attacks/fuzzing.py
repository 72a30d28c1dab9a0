"""Duration and seed of the fuzzing, its counts, and a check that memory does not grow."""

import asyncio
import os
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

import orjson

from tests.attacks.target import Target
from tests.attacks.transcripts import VARIANTS
from tests.examples import IS_CI

SECONDS: Final = float(os.environ.get("MCP_GATEWAY_FUZZ_SECONDS", "8" if IS_CI else "2"))
SEED: Final = os.environ.get("MCP_GATEWAY_FUZZ_SEED", "1")
GROWTH: Final = 64 * 2**20
"""Bytes by which a daemon can grow after its warm-up, because bounded pools and caches fill up late."""
_WARM_UP_FRACTION: Final = 0.25
_RELOAD_SECONDS: Final = 1.0


@dataclass(kw_only=True)
class Counts:
    kinds: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    memory: list[int] = field(default_factory=list)
    """MiB, measured after each reload."""

    def __str__(self) -> str:
        memory = self.memory[:: max(1, len(self.memory) // 30)]
        return f"seed {SEED}, {SECONDS:g} s: {dict(sorted(self.kinds.items()))}; memory in MiB: {memory}"


async def fuzz(target: Target, counters: Counts, visitors: list[Callable[[], Awaitable[None]]]) -> None:
    """Call each visitor repeatedly for `SECONDS`, and reload the daemon at intervals."""
    end = time.monotonic() + SECONDS

    async def again(visitor: Callable[[], Awaitable[None]]) -> None:
        while time.monotonic() < end and not counters.failures:
            await visitor()

    async def reload() -> None:
        number = 0
        while time.monotonic() < end:
            (target.folder / "extra.yaml").write_text(VARIANTS[number % len(VARIANTS)])
            answer = await asyncio.to_thread(target.direct.request, "POST", "/-/reload", fields=target.operator)
            counters.kinds[f"reload {answer.status}"] += 1
            counters.memory.append(target.rss() // 2**20)
            number += 1
            await asyncio.sleep(_RELOAD_SECONDS)

    async with asyncio.TaskGroup() as group:
        group.create_task(reload())
        for visitor in visitors:
            group.create_task(again(visitor))


def assert_unaffected(target: Target, counters: Counts) -> None:
    """Check that no request failed, nothing is left behind, and memory did not grow."""
    print(counters)  # noqa: T201 - shown by `pytest -s`
    assert not counters.failures, counters.failures[:3]
    audit = (target.folder / "audit.jsonl").read_bytes()
    assert all(orjson.loads(line)["event"] for line in audit.splitlines())
    target.scanner.scan(b"", audit)
    target.assert_unharmed()
    warm = max(counters.memory[: max(1, int(len(counters.memory) * _WARM_UP_FRACTION)) + 1])
    assert target.rss() <= warm * 2**20 + GROWTH, counters
