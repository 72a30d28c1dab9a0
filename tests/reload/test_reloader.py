"""Tests for detecting changes."""

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import cast

import pytest

from gateway.errors import ConfigError, Problem, Severity
from gateway.reload.pipeline import ReloadPipeline
from gateway.reload.reloader import Reloader, ReloadStatus
from gateway.reload.watch_plan import Snapshot, WatchPlan
from tests.waiting import until

NEVER = timedelta(hours=1)


class Loads:
    """A fake pipeline that serves the text of one file."""

    def __init__(self, path: Path, plan: WatchPlan | None = None) -> None:
        self.path = path
        self.plan = plan or WatchPlan(files=frozenset({path}), directories=frozenset({path.parent}))
        self.served: asyncio.Queue[str] = asyncio.Queue()
        self.source_changed = asyncio.Event()

    @property
    def watch_plan(self) -> WatchPlan:
        return self.plan

    async def load_and_compile(self) -> str:
        text = self.path.read_text() if self.path.exists() else "missing"
        if "broken" in text:
            doubtful = Problem(message="is doubtful", severity=Severity.WARNING)
            raise ConfigError([doubtful, Problem(message="is broken")])
        return text

    def swap(self, candidate: str) -> None:
        self.served.put_nowait(candidate)

    def announce(self) -> None:
        """Do nothing."""

    async def next(self) -> str:
        async with asyncio.timeout(20):
            return await self.served.get()

    def reloader(self) -> Reloader:
        return Reloader(cast("ReloadPipeline", self), poll=NEVER, loaded_at=time.time_ns())


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "etc" / "config.yaml"
    path.parent.mkdir()
    path.write_text("one")
    return path


async def watching(reloader: Reloader) -> AsyncIterator[None]:
    """Run the loop and wait until it watches."""
    task = asyncio.create_task(reloader.run())
    while not reloader.is_watching:
        await asyncio.sleep(0.01)
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def save_by_rename(path: Path, text: str) -> None:
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_text(text)
    temporary.rename(path)


async def test_change_before_the_first_snapshot_is_detected(config: Path) -> None:
    loads = Loads(config)
    reloader = loads.reloader()
    save_by_rename(config, "early")
    async for _ in watching(reloader):
        assert await loads.next() == "early"


async def test_removal_before_the_first_snapshot_is_detected(config: Path) -> None:
    files = frozenset({config})
    loads = Loads(config, WatchPlan(files=files, present=files))
    reloader = loads.reloader()
    config.unlink()
    async for _ in watching(reloader):
        assert await loads.next() == "missing"


async def test_missing_optional_file_is_not_a_change(config: Path) -> None:
    loads = Loads(config, WatchPlan(files=frozenset({config, config.with_name("optional")})))
    async for _ in watching(loads.reloader()):
        save_by_rename(config, "two")
        assert await loads.next() == "two"
        assert loads.served.empty()


async def test_bug_during_a_reload_does_not_end_the_watch(config: Path) -> None:
    loads = Loads(config)
    reloader = loads.reloader()
    async for _ in watching(reloader):
        config.write_bytes(b"\xff")  # `load_and_compile` does not handle it
        await until(lambda: not reloader.status.is_good)
        save_by_rename(config, "right")
        assert await loads.next() == "right"


async def test_reload_completes_after_its_caller_is_cancelled(config: Path) -> None:
    loads = Loads(config)
    reloader = loads.reloader()
    asking = asyncio.create_task(reloader.reload())
    await asyncio.sleep(0)
    asking.cancel()
    assert await loads.next() == "one"
    await reloader.close()


async def test_requests_during_a_reload_share_the_next_one(config: Path) -> None:
    builds, began, release = 0, asyncio.Event(), asyncio.Event()

    class SlowLoads(Loads):
        async def load_and_compile(self) -> str:
            nonlocal builds
            builds += 1
            text = await super().load_and_compile()
            began.set()
            await release.wait()
            return text

    reloader = SlowLoads(config).reloader()
    first = asyncio.create_task(reloader.reload())
    async with asyncio.timeout(20):
        await began.wait()
        config.write_text("broken")
        others = [asyncio.create_task(reloader.reload()) for _ in range(100)]
        await asyncio.sleep(0)
        others[0].cancel()
        release.set()
        assert (await first).is_good
        assert not any([(await other).is_good for other in others[1:]])
    assert builds == 2
    await reloader.close()


async def test_save_followed_by_a_request_is_loaded_once(config: Path) -> None:
    loads = Loads(config)
    reloader = loads.reloader()
    async for _ in watching(reloader):
        save_by_rename(config, "two")
        assert (await reloader.reload()).is_good
        assert await loads.next() == "two"
        save_by_rename(config, "three")
        assert await loads.next() == "three"
        assert loads.served.empty()


async def test_write_through_a_link_is_detected(tmp_path: Path) -> None:
    real = tmp_path / "elsewhere" / "real.yaml"
    real.parent.mkdir()
    real.write_text("one")
    config = tmp_path / "etc" / "config.yaml"
    config.parent.mkdir()
    config.symlink_to(real)
    loads = Loads(config)
    async for _ in watching(loads.reloader()):
        real.write_text("two")
        assert await loads.next() == "two"


async def test_save_during_a_snapshot_is_loaded_once(config: Path) -> None:
    """The snapshot sees the file half written, but the load reads it complete."""
    is_half_written, snapshots = False, 0

    class CompletedAfterSnapshot(WatchPlan):
        def snapshot(self) -> Snapshot:
            nonlocal is_half_written, snapshots
            seen = super().snapshot()
            snapshots += 1
            if is_half_written:
                is_half_written = False
                config.write_text("whole")
            return seen

    class TruncatedAfterReload(Loads):
        def announce(self) -> None:
            nonlocal is_half_written
            if config.read_text() == "two":
                config.write_text("")
                is_half_written = True

    plan = CompletedAfterSnapshot(files=frozenset({config}), directories=frozenset({config.parent}))
    loads = TruncatedAfterReload(config, plan)
    reloader = loads.reloader()
    async for _ in watching(reloader):
        save_by_rename(config, "two")
        assert [await loads.next(), await loads.next()] == ["two", "whole"]
        looks_before = snapshots
        async with asyncio.timeout(20):
            while snapshots == looks_before:
                await asyncio.sleep(0.01)
        assert (await reloader.reload()).is_good  # later than the load after the snapshot
        assert await loads.next() == "whole"
        assert loads.served.empty()


async def test_reload_event_follows_the_status(config: Path) -> None:
    """The swap and the status change together."""
    statuses: list[ReloadStatus] = []

    class Listening(Loads):
        def announce(self) -> None:
            statuses.append(reloader.status)

    reloader = Listening(config).reloader()
    config.write_text("broken")
    assert not (await reloader.reload()).is_good
    config.write_text("right")
    good = await reloader.reload()
    assert statuses == [good]
    assert good.is_good


async def test_configmap_swap_before_the_first_snapshot_is_detected(tmp_path: Path) -> None:
    for version in ("v1", "v2"):
        (tmp_path / version).mkdir()
        (tmp_path / version / "config.yaml").write_text(version)
    (tmp_path / "..data").symlink_to("v1")
    (tmp_path / "config.yaml").symlink_to("..data/config.yaml")
    loads = Loads(tmp_path / "config.yaml")
    reloader, loaded_at = loads.reloader(), time.time_ns()
    while (tmp_path / "..data").lstat().st_ctime_ns < loaded_at:  # file timestamps are coarse
        (tmp_path / "..data_tmp").symlink_to("v2")
        (tmp_path / "..data_tmp").rename(tmp_path / "..data")
    async for _ in watching(reloader):
        assert await loads.next() == "v2"


@pytest.mark.skipif(sys.platform == "darwin", reason="file names must be UTF-8")
async def test_failed_watch_does_not_delay_the_events_of_other_watches(config: Path) -> None:
    unwatchable = config.with_name(os.fsdecode(b"\xff"))  # The watch library requires UTF-8 paths.
    unwatchable.mkdir()
    loads = Loads(config, WatchPlan(files=frozenset({config}), trees=frozenset({unwatchable})))
    reloader = loads.reloader()
    async for _ in watching(reloader):
        assert reloader.watch_error is not None
        async with asyncio.timeout(60):  # Without events, each save would be detected only after ten seconds.
            for number in range(10):
                save_by_rename(config, str(number))
                assert await loads.next() == str(number)
