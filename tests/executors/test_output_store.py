"""Stored outputs: owners, lifetime and limits."""

import asyncio
import base64
import weakref
from pathlib import Path

import pytest

from gateway.executors.output import output_store as parking
from gateway.executors.output.output_store import OutputStore
from gateway.state.fallback_connection import SqliteStatement
from gateway.state.state import DaemonState
from tests.waiting import until


class Clock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def park(output_store: OutputStore, contents: str | bytes, caller: str = "me") -> str:
    uri = output_store.save(contents, media_type="text/plain", caller=caller)
    assert uri is not None
    return uri


async def test_stored_output_is_read_unchanged() -> None:
    output_store = OutputStore()
    text, data = park(output_store, "ü"), park(output_store, b"\xff")
    assert await output_store.read(text, caller="me") == {"uri": text, "mimeType": "text/plain", "text": "ü"}
    assert await output_store.read(data, caller="me") == {
        "uri": data,
        "mimeType": "text/plain",
        "blob": base64.b64encode(b"\xff").decode(),
    }


async def test_output_has_a_random_uri_and_only_its_caller_can_read_it() -> None:
    output_store = OutputStore()
    uri = park(output_store, "x")
    assert await output_store.read(uri, caller="you") is None
    assert await output_store.read("output://x", caller="me") is None
    assert len({park(output_store, "x") for _ in range(20)}) == 20
    assert len(uri) == len("output://") + 32


async def test_output_expires_after_ten_minutes() -> None:
    clock = Clock()
    output_store = OutputStore(clock=clock)
    uri = park(output_store, "x")
    clock.now += 599
    assert await output_store.read(uri, caller="me") is not None
    clock.now += 1
    assert await output_store.read(uri, caller="me") is None


async def test_expired_output_is_dropped_by_a_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    class Text(str):
        """A text with weak references."""

        __slots__ = ("__weakref__",)

    monkeypatch.setattr(parking, "_SWEEP_SECONDS", 0)
    clock = Clock()
    output_store = OutputStore(clock=clock)
    contents = weakref.ref(text := Text("x"))
    park(output_store, text)
    del text
    expiring = asyncio.create_task(output_store.expire())
    await asyncio.sleep(0)
    assert contents() is not None
    clock.now += 600
    await until(lambda: contents() is None)
    expiring.cancel()


async def test_oldest_of_33_outputs_of_a_caller_is_removed() -> None:
    output_store = OutputStore()
    foreign = park(output_store, "x", caller="you")
    uris = [park(output_store, str(number)) for number in range(33)]
    assert [await output_store.read(uri, caller="me") is None for uri in uris] == [True] + [False] * 32
    assert await output_store.read(foreign, caller="you") is not None


async def test_bytes_are_limited_per_output_per_caller_and_in_total() -> None:
    output_store = OutputStore()
    half = b"x" * (parking.MAX_OUTPUT_BYTES // 2)
    assert output_store.save(half * 2 + b"x", media_type="text/plain", caller="me") is None
    first, second, third = (park(output_store, half) for _ in range(3))
    assert await output_store.read(first, caller="me") is None
    assert output_store._outputs.keys() == {second, third}
    for caller in ("a", "b", "c", "d"):
        park(output_store, half, caller=caller)
        park(output_store, half, caller=caller)
    assert output_store._size <= parking.MAX_TOTAL_BYTES
    assert await output_store.read(second, caller="me") is None


async def test_archived_outputs_survive_a_restart_with_their_limits(tmp_path: Path) -> None:
    clock = Clock()
    async with DaemonState(tmp_path, clock=clock) as state:
        store = OutputStore(clock=clock)
        await store.use(state.outputs)
        texts = [store.save(f"ü{number}", media_type="text/plain", caller="me", seconds=60) for number in range(3)]
        data = store.save(b"\xff", media_type="image/png", caller="me", seconds=10)
        short = store.save("x", media_type="text/plain", caller="me")
    assert None not in (*texts, data, short)
    async with DaemonState(tmp_path, clock=clock) as state:
        store = OutputStore(clock=clock)
        await store.use(state.outputs)
        assert store.count == 4
        assert await store.read(texts[0] or "", caller="me") == {
            "uri": texts[0],
            "mimeType": "text/plain",
            "text": "ü0",
        }
        assert await store.read(texts[0] or "", caller="you") is None
        assert ((await store.read(data or "", caller="me")) or {})["blob"] == base64.b64encode(b"\xff").decode()
        assert await store.read(short or "", caller="me") is None
        for _ in range(parking.MAX_OUTPUTS_PER_CALLER - 1):
            assert store.save("more", media_type="text/plain", caller="me") is not None
        assert await store.read(texts[1] or "", caller="me") is None
        assert await state.database.run(SqliteStatement("SELECT count(*) FROM outputs")) == [(1,)]
        clock.now += 60
        assert store.count == parking.MAX_OUTPUTS_PER_CALLER - 1
    async with DaemonState(tmp_path, clock=clock) as state:
        store = OutputStore(clock=clock)
        await store.use(state.outputs)
        assert store.count == 0
