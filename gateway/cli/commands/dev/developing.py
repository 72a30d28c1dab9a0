"""Serves a file while it is edited. Reports calls, clients and changes, and waits while the file is invalid."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Final

import msgspec
import orjson
import structlog

from gateway.app.gateway import Gateway
from gateway.catalog.skills.discovery import watched
from gateway.config.definition_source import load_definitions
from gateway.config.machine_facts import is_directory
from gateway.config.reading.file_pattern import FilePattern
from gateway.config.reading.inclusion import SUFFIXES
from gateway.config.settings import Settings
from gateway.errors import ConfigError, Problem
from gateway.json_types import Json, JsonObject, empty
from gateway.reload.planning import Change, plan
from gateway.reload.watch_plan import Snapshot, WatchPlan
from gateway.reload.watcher import Watcher
from gateway.telemetry.observer import CallFacts, CallResult, Outcome
from gateway.wire.meta import title_of

log: Final = structlog.get_logger(__name__)

_SNAPSHOT_SECONDS: Final = 0.25
_POLL: Final = timedelta(seconds=2)
"""Interval to compare an invalid file, for file systems without events."""
_MAX_REASON: Final = 300
_MAX_LENGTH: Final = 2000


class CallStarted(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    what: str
    """Name of the primitive, or the name or URI in the request if there is no such primitive."""
    arguments: str
    client: str


class CallEnded(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    is_good: bool
    outcome: str
    """Empty for a success."""
    seconds: float


class Reloaded(msgspec.Struct, frozen=True, kw_only=True):
    generation: int
    changes: tuple[Change, ...]


class StatusSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The state of the daemon, sent several times per second."""

    status: JsonObject
    """Body of `/-/status`, or empty while nothing is served."""
    url: str | None
    problems: tuple[Problem, ...]
    """The errors that prevent the file from being served."""
    apps: Mapping[str, Path] = msgspec.field(default_factory=empty)
    """Files of the pages of tools, by tool name."""


DevEvent = CallStarted | CallEnded | Reloaded | StatusSnapshot
DevListener = Callable[[DevEvent], None]
"""Called on the event loop's thread; must not block."""


async def develop(
    settings: Settings,
    report: DevListener,
    *,
    on_exit: Callable[[], None],
    show_console: Callable[[str], None] | None = None,
) -> None:
    """Serve until SIGINT or SIGTERM. If the file is invalid, wait for a change.

    `on_exit` is called from any thread before the process exits without cleanup. With `show_console`, the console is
    enabled, and `show_console` is called with its URL.

    Raises:
        ConfigError: the address is not available.
    """
    while True:
        # Set before loading, so that changes while loading are noticed.
        began_at = time.time_ns()
        gateway = Gateway(settings, observers=[_Calls(report)], opens_console=show_console is not None)
        async with AsyncExitStack() as stack:
            try:
                await stack.enter_async_context(gateway)
            except ConfigError as error:
                report(StatusSnapshot(status={}, url=None, problems=tuple(error.problems)))
                await _changed(settings.config, since=began_at)
                continue
            async with _polling_status(gateway, report, show_console):
                await gateway.serve(on_exit=on_exit)
            return


@asynccontextmanager
async def _polling_status(
    gateway: Gateway, report: DevListener, show_console: Callable[[str], None] | None
) -> AsyncIterator[None]:
    task = asyncio.create_task(_send_snapshots(gateway, report, show_console), name="status snapshots")
    try:
        yield
    finally:
        task.cancel()
        [ended] = await asyncio.gather(task, return_exceptions=True)
        if isinstance(ended, Exception):  # an error in the view must not stop the server
            log.error("view failed", exc_info=ended)


async def _send_snapshots(gateway: Gateway, report: DevListener, show_console: Callable[[str], None] | None) -> None:
    served, generation, apps = await gateway.manifest(), gateway.status()["generation"], gateway.apps
    while True:
        status = gateway.status()
        if status["generation"] != generation:
            before, served, generation = served, await gateway.manifest(), status["generation"]
            apps = gateway.apps
            report(Reloaded(generation=generation, changes=plan(before, served).changes))
        report(StatusSnapshot(status=status, url=gateway.url, problems=gateway.problems, apps=apps))
        if show_console is not None and gateway.console_link is not None:
            show_console(gateway.console_link)
            show_console = None
        await asyncio.sleep(_SNAPSHOT_SECONDS)


class _Calls:
    def __init__(self, report: DevListener) -> None:
        self._report: Final = report

    def began(self, call: CallFacts) -> None:
        params = call.params
        asked: Json = params.get("name") or params.get("uri") or params.get("ref")
        arguments = params.get("arguments") or params.get("argument") or ({"uri": asked} if "uri" in params else {})
        redactor = call.catalog.redactor
        self._report(
            CallStarted(
                id=call.id,
                what=call.name or f"{asked} (unknown)",
                arguments=_as_json(redactor.json(arguments)),
                client=title_of(call.terms.client_info),
            )
        )

    def ended(self, call: CallFacts, ending: CallResult) -> None:
        reason = call.catalog.redactor.text(ending.reason)[:_MAX_REASON]
        error_text = f": {reason}" if reason else ""
        self._report(
            CallEnded(
                id=call.id,
                is_good=ending.outcome in {Outcome.OK, Outcome.INPUT_REQUIRED},
                outcome=_WORDS[ending.outcome] + error_text,
                seconds=ending.seconds,
            )
        )


_WORDS: Final = {
    Outcome.OK: "",
    Outcome.TOOL_ERROR: "tool error",
    Outcome.PROTOCOL_ERROR: "refused",
    Outcome.INPUT_REQUIRED: "asks the user",
    Outcome.CANCELLED: "cancelled",
}


def _as_json(value: Json) -> str:
    try:
        return orjson.dumps(value).decode()[:_MAX_LENGTH] if value else ""
    except TypeError:  # orjson rejects integers of more than 64 bits and lone surrogates
        return repr(value)[:_MAX_LENGTH]


async def _changed(path: Path, *, since: int) -> None:
    seen = Snapshot(taken_at=since)
    while True:
        watched = await asyncio.to_thread(_watch_plan, path)
        async with Watcher(watched, poll=_POLL) as watcher:
            # Watch first, then compare, so that no change is missed.
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
    plugins = frozenset(loaded.root / directory for directory in loaded.document.plugins)
    skills = (
        FilePattern.parse(each.dir, directory=loaded.sources.directory(("skills", index)))
        for index, each in enumerate(loaded.document.skills)
    )
    return itself | WatchPlan(
        globs=frozenset(map(watched, skills)),
        files=frozenset(loaded.files),
        directories=loaded.directories,
        patterns=frozenset(loaded.globs),
        trees=loaded.trees | plugins,
    )
