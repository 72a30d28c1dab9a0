"""Serves a file that is being edited, reports calls, clients and changes, and waits while the file is invalid."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Final

import structlog

from gateway.app.gateway import Gateway
from gateway.catalog.skill_snapshot import watched
from gateway.cli.commands.dev.event_lines import EventLines, StatusSnapshot
from gateway.config.definition_source import load_definitions
from gateway.config.machine_facts import is_directory
from gateway.config.reading.file_pattern import FilePattern
from gateway.config.reading.inclusion import SUFFIXES
from gateway.config.settings import Settings
from gateway.errors import ConfigError
from gateway.reload.planning import plan
from gateway.reload.watch_plan import Snapshot, WatchPlan, watch_loaded
from gateway.reload.watcher import Watcher

log: Final = structlog.get_logger(__name__)

_SNAPSHOT_SECONDS: Final = 0.25
_POLL: Final = timedelta(seconds=2)
"""How often an invalid file is checked for changes on file systems without change events."""

ShowConsole = Callable[[str], None]
"""A function that receives the URL of the console."""


async def develop(
    settings: Settings, lines: EventLines, *, on_exit: Callable[[], None], show_console: ShowConsole | None = None
) -> None:
    """Serve the file until SIGINT or SIGTERM. If the file is invalid, wait for a change and try again.

    Any thread can call `on_exit`, before the process exits without cleanup. `show_console` enables the console.

    Raises:
        ConfigError: the address is not available.
    """
    while True:
        # Take the time before loading the file, so that a change during loading is noticed.
        began_at = time.time_ns()
        gateway = Gateway(settings, observers=[lines], opens_console=show_console is not None)
        async with AsyncExitStack() as stack:
            try:
                await stack.enter_async_context(gateway)
            except ConfigError as error:
                lines.take_snapshot(StatusSnapshot(status={}, url=None, problems=tuple(error.problems)))
                await _changed(settings.config, since=began_at)
                continue
            async with _taking_snapshots(gateway, lines, show_console):
                await gateway.serve(on_exit=on_exit)
            return


@asynccontextmanager
async def _taking_snapshots(
    gateway: Gateway, lines: EventLines, show_console: ShowConsole | None
) -> AsyncIterator[None]:
    task = asyncio.create_task(_take_snapshots(gateway, lines, show_console), name="status snapshots")
    try:
        yield
    finally:
        task.cancel()
        [ended] = await asyncio.gather(task, return_exceptions=True)
        if isinstance(ended, Exception):  # an error in the view must not stop the server
            log.error("view failed", exc_info=ended)


async def _take_snapshots(gateway: Gateway, lines: EventLines, show_console: ShowConsole | None) -> None:
    served, generation, apps = await gateway.manifest(), gateway.status()["generation"], gateway.apps
    while True:
        status = gateway.status()
        if status["generation"] != generation:
            before, served, generation = served, await gateway.manifest(), status["generation"]
            apps = gateway.apps
            lines.reloaded(generation, plan(before, served).changes)
        lines.take_snapshot(StatusSnapshot(status=status, url=gateway.url, problems=gateway.problems, apps=apps))
        if show_console is not None and gateway.console_link is not None:
            show_console(gateway.console_link)
            show_console = None
        await asyncio.sleep(_SNAPSHOT_SECONDS)


async def _changed(path: Path, *, since: int) -> None:
    seen = Snapshot(taken_at=since)
    while True:
        watched = await asyncio.to_thread(_watch_plan, path)
        async with Watcher(watched, poll=_POLL) as watcher:
            # Start watching before comparing the files, so that no change is missed.
            now = await asyncio.to_thread(watched.snapshot)
            if await asyncio.to_thread(now.differs_from, seen):
                return
            seen = now
            await watcher.hint()


def _watch_plan(path: Path) -> WatchPlan:
    itself = WatchPlan(
        files=frozenset({path}),
        directories=frozenset({path if is_directory(path) else path.parent}),
        patterns=frozenset(FilePattern(path.absolute(), f"*{suffix}") for suffix in SUFFIXES),
    )
    try:
        loaded = load_definitions(path)
    except ConfigError:
        return itself
    skills = (
        FilePattern.parse(each.dir, directory=loaded.sources.directory(("skills", index)))
        for index, each in enumerate(loaded.document.skills)
    )
    used = WatchPlan(
        trees=frozenset(loaded.root / directory for directory in loaded.document.plugins),
        globs=frozenset(map(watched, skills)),
    )
    return itself | watch_loaded(loaded) | used
