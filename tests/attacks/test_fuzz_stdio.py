"""Fuzzing over stdio: malformed messages of both eras, and a client that stops reading or closes its pipes.

MCP_GATEWAY_FUZZ_SECONDS and MCP_GATEWAY_FUZZ_SEED set the duration and the seed. `-s` shows the counts.
"""

import asyncio
import dataclasses
import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import orjson
import pytest

from gateway.json_types import Json
from tests.attacks.client import TIMEOUT_SECONDS, initialize
from tests.attacks.fuzzing import SECONDS, SEED, Counts, assert_unaffected, fuzz
from tests.attacks.mutations import Mutator
from tests.attacks.target import Target, attacking
from tests.attacks.transcripts import PLAN as HTTP_PLAN
from tests.attacks.transcripts import legacy_messages, modern_messages, opening
from tests.e2e.daemon import call

PLAN: Final = dataclasses.replace(HTTP_PLAN, is_stdio=True)
INTERNAL_ERROR: Final = -32603
ENDED_DAEMONS: Final = 3 if SECONDS < 60 else 24
"""The number of daemons whose client disconnects."""


def lines(mutator: Mutator) -> Iterator[bytes]:
    """Yield messages, most of them malformed. The first one opens a legacy session."""
    rng = mutator.rng
    messages: list[Json] = [*modern_messages(), *legacy_messages(), initialize()]
    yield orjson.dumps(opening(rng.choice(("2025-03-26", "2025-11-25"))))
    while True:
        message: Json = rng.choice(messages)
        if rng.random() < 0.05:
            message = rng.choices(messages, k=rng.randrange(120))
        data = mutator.message(message) if rng.random() < 0.7 else orjson.dumps(message)
        yield mutator.noise(data) if rng.random() < 0.1 else data


async def test_stdio_survives_broken_lines(target: Target) -> None:
    counters = Counts()
    mutator = Mutator(SEED)
    source = lines(mutator)
    subscriptions: set[str | int] = set()
    assert target.process.stdin is not None
    descriptor = target.process.stdin.fileno()
    _write_all(descriptor, next(source) + b"\n")
    await asyncio.to_thread(target.line_with, 0)
    target.record_baseline()  # the session is open

    async def write() -> None:
        data = b"".join(next(source) + b"\n" for _ in range(mutator.rng.choice((1, 1, 3, 20))))
        cut = mutator.rng.randrange(len(data))
        for piece in (data[:cut], data[cut:]):
            await asyncio.to_thread(_write_all, descriptor, piece)
            await asyncio.sleep(mutator.rng.choice((0, 0.002, 0.02)))
        counters.kinds["lines sent"] += data.count(b"\n")
        subscriptions.update(_judge(target, counters))
        if mutator.rng.random() < 0.02:
            await _stop_reading_for_a_while(target)

    await fuzz(target, counters, [write])
    await asyncio.to_thread(_write_all, descriptor, b"\n" + orjson.dumps(call("echo", text="still", request_id="last")))
    await asyncio.to_thread(_write_all, descriptor, b"\n")
    answer = await asyncio.to_thread(target.line_with, "last")
    assert answer["result"]["content"][0]["text"] == "still"
    subscriptions.update(_judge(target, counters))
    for subscription in subscriptions:
        message = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": subscription}}
        await asyncio.to_thread(_write_all, descriptor, orjson.dumps(message) + b"\n")
    assert_unaffected(target, counters)


@pytest.mark.parametrize("number", range(ENDED_DAEMONS))
def test_disconnected_client_leaves_no_resources(tmp_path: Path, number: int) -> None:
    """Under load, standard input ends within a line, the client stops reading, or a signal arrives."""
    mutator = Mutator(f"{SEED}-{number}")
    source = lines(mutator)
    with attacking(PLAN, tmp_path) as target:
        process = target.process
        assert process.stdin is not None
        os.set_blocking(process.stdin.fileno(), False)
        if number % 3 == 1:
            target.is_reading.clear()
        with suppress(BlockingIOError):  # the daemon stops reading when responses are not read
            for _ in range(mutator.rng.randrange(300)):
                _write_all(process.stdin.fileno(), next(source) + b"\n")
            _write_all(process.stdin.fileno(), next(source)[:50])
        if number % 3 == 2:
            process.send_signal(signal.SIGTERM)
        else:
            process.stdin.close()
        assert process.wait(TIMEOUT_SECONDS) == 0, target.log
        target.assert_quiet()


def _judge(target: Target, counters: Counts) -> Iterator[str | int]:
    """Check that all responses are JSON-RPC without internal errors. Yield the ids of open subscriptions."""
    judged = target.lines[:]
    for line in judged:
        message = orjson.loads(line)
        for entry in message if isinstance(message, list) else [message]:
            counters.kinds["result" if "result" in entry else "error" if "error" in entry else "notification"] += 1
            if entry["jsonrpc"] != "2.0" or entry.get("error", {}).get("code") == INTERNAL_ERROR:
                counters.failures.append(line.decode(errors="replace")[:2000])
            if entry.get("method") == "notifications/subscriptions/acknowledged":
                yield entry["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"]
    del target.lines[: len(judged)]


def _write_all(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


async def _stop_reading_for_a_while(target: Target) -> None:
    target.is_reading.clear()
    await asyncio.sleep(0.2)
    target.is_reading.set()
