"""Serves a file while it is written: reports each call, client and change, and waits while the file is broken."""

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
"""The interval at which a broken file is compared, where the file system sends no events."""
_MAX_REASON: Final = 300
_MAX_LENGTH: Final = 2000
"""Characters of a call's arguments that are kept."""


class CallStarted(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    what: str
    """The primitive's name; if there is none, the name or URI of the request."""
    arguments: str
    """JSON, with secrets masked."""
    client: str


class CallEnded(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    is_good: bool
    outcome: str
    """Text for a person; empty for a plain success."""
    seconds: float


class Reloaded(msgspec.Struct, frozen=True, kw_only=True):
    """A new catalog is served."""

    generation: int
    changes: tuple[Change, ...]


class StatusSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The state of the daemon; sent several times a second."""

    status: JsonObject
    """The answer of `/-/status`; empty while nothing is served."""
    url: str | None
    problems: tuple[Problem, ...]
    """The problems that keep the file from being served."""
    apps: Mapping[str, Path] = msgspec.field(default_factory=empty)
    """The file of each page that is served for a tool, by the tool's name."""


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
    """Serve until SIGINT or SIGTERM, and wait for a file that cannot be served to change.

    `on_exit` is called from any thread just before the process ends without cleaning up. With `show_console` the
    console is served whatever the file says, and that is called with its URL.

    Raises:
        ConfigError: the address cannot be listened on.
    """
    while True:
        # Before it is read: what changes while it is being loaded counts as a change.
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
        if isinstance(ended, Exception):  # a bug in the view must not end the server
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
    """An observer that reports calls as events."""

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
        reason = _tool_error(ending) if ending.error is None else ending.error.message
        error_text = f": {call.catalog.redactor.text(reason)}" if reason else ""
        self._report(
            CallEnded(
                id=call.id,
                is_good=ending.outcome in {Outcome.OK, Outcome.INPUT_REQUIRED},
                outcome=_WORDS[ending.outcome] + error_text,
                seconds=ending.seconds,
            )
        )


def _tool_error(ending: CallResult) -> str:
    """Return the text of a failed result on one line; empty for other results."""
    if ending.outcome is not Outcome.TOOL_ERROR or ending.response is None:
        return ""
    blocks = orjson.loads(ending.response)["result"]["content"]
    return " ".join(" ".join(block.get("text", "") for block in blocks).split())[:_MAX_REASON]


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
    except TypeError:  # orjson refuses integers of more than 64 bits, and lone surrogates
        return repr(value)[:_MAX_LENGTH]


async def _changed(path: Path, *, since: int) -> None:
    """Wait until one of the files has changed since that time."""
    seen = Snapshot(taken_at=since)
    while True:
        # Made anew after each change: a file that can be read by now may name others.
        watched = await asyncio.to_thread(_watch_plan, path)
        async with Watcher(watched, poll=_POLL) as watcher:
            # Watched first, and compared then: a change between the two is not missed.
            now = await asyncio.to_thread(watched.snapshot)
            if await asyncio.to_thread(now.differs_from, seen):
                return
            seen = now
            await watcher.hint()


def _watch_plan(path: Path) -> WatchPlan:
    """The files to watch for a configuration that cannot be served; includes only if it can be read."""
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
