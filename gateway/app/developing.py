"""Serve a file for somebody who is writing it: tell of each call, client and change, and wait while it is broken."""

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Final

import orjson
import structlog

from gateway.app.gateway import Gateway
from gateway.app.rehearsal.planning import Change, plan
from gateway.app.reports.clients import title_of
from gateway.config.loader import load
from gateway.config.path_kinds import is_directory
from gateway.config.reading.file_pattern import FilePattern
from gateway.config.reading.inclusion import SUFFIXES
from gateway.config.settings import Settings
from gateway.errors import ConfigError, Problem
from gateway.json_types import Json, JsonObject
from gateway.protocol.calls import Call, EndedAs, Ending
from gateway.reloader.watch_plan import Snapshot, WatchPlan
from gateway.reloader.watcher import Watcher

log: Final = structlog.get_logger()

_GLANCE_SECONDS: Final = 0.25
_POLL: Final = timedelta(seconds=2)
"""How often to look at a broken file where no event comes."""
_LONGEST: Final = 2000
"""Characters of a call's arguments that are told."""
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


@dataclass(frozen=True, slots=True, kw_only=True)
class CallBegan:
    id: str
    what: str
    """The primitive's name; of what is unknown, what was asked for."""
    arguments: str
    """As JSON, secrets masked."""
    client: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CallEnded:
    id: str
    is_good: bool
    outcome: str
    """In words."""
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Reloaded:
    """What is served is another than before."""

    generation: int
    changes: tuple[Change, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Glance:
    """How things are; told several times a second."""

    status: JsonObject
    """What `/-/status` says; empty while nothing is served."""
    url: str | None
    problems: tuple[Problem, ...]
    """What keeps the file from being served as it is."""


Happening = CallBegan | CallEnded | Reloaded | Glance
Tell = Callable[[Happening], None]
"""Called on the event loop's thread; must not block."""


async def develop(settings: Settings, tell: Tell, *, on_leave: Callable[[], None]) -> None:
    """Serve until SIGINT or SIGTERM; a file that cannot be served is waited for.

    `on_leave` is called where the process has to end at once, from any thread.

    Raises:
        ConfigError: the address cannot be listened on.
    """
    while True:
        began_at = time.time_ns()
        gateway = Gateway(settings, observers=[_Calls(tell)])
        async with AsyncExitStack() as stack:
            try:
                await stack.enter_async_context(gateway)
            except ConfigError as error:
                with _stop_signals() as stop:
                    tell(Glance(status={}, url=None, problems=tuple(error.problems)))
                    if not await _is_changed(settings.config, since=began_at, stop=stop):
                        return
                continue
            async with _glancing(gateway, tell):
                await gateway.serve(on_leave=on_leave)
            return


@asynccontextmanager
async def _glancing(gateway: Gateway, tell: Tell) -> AsyncIterator[None]:
    task = asyncio.create_task(_glance(gateway, tell), name="glances for the developer")
    try:
        yield
    finally:
        task.cancel()
        [ended] = await asyncio.gather(task, return_exceptions=True)
        if isinstance(ended, Exception):  # a bug of ours in what is only shown
            log.error("view failed", exc_info=ended)


async def _glance(gateway: Gateway, tell: Tell) -> None:
    served, generation = await gateway.picture(), gateway.status()["generation"]
    while True:
        status = gateway.status()
        if status["generation"] != generation:
            before, served, generation = served, await gateway.picture(), status["generation"]
            tell(Reloaded(generation=generation, changes=plan(before, served).changes))
        tell(Glance(status=status, url=gateway.url, problems=gateway.problems))
        await asyncio.sleep(_GLANCE_SECONDS)


class _Calls:
    """An observer of calls that puts them into words."""

    def __init__(self, tell: Tell) -> None:
        self._tell: Final = tell

    def began(self, call: Call) -> None:
        params = call.request.params
        asked: Json = params.get("name") or params.get("uri") or params.get("ref")
        arguments = params.get("arguments") or params.get("argument") or ({"uri": asked} if "uri" in params else {})
        redactor = call.request.catalog.redactor
        self._tell(
            CallBegan(
                id=call.id,
                what=call.name or f"{asked} (unknown)",
                arguments=_in_json(redactor.json(arguments)),
                client=title_of(call.request.client_info),
            )
        )

    def ended(self, call: Call, ending: Ending) -> None:
        said = "" if ending.error is None else f": {call.request.catalog.redactor.text(ending.error.message)}"
        self._tell(
            CallEnded(
                id=call.id,
                is_good=ending.outcome in {EndedAs.OK, EndedAs.INPUT_REQUIRED},
                outcome=_WORDS[ending.outcome] + said,
                seconds=ending.seconds,
            )
        )


_WORDS: Final = {
    EndedAs.OK: "",
    EndedAs.TOOL_ERROR: "tool error",
    EndedAs.PROTOCOL_ERROR: "refused",
    EndedAs.INPUT_REQUIRED: "asks the user",
    EndedAs.CANCELLED: "cancelled",
}


def _in_json(value: Json) -> str:
    try:
        return orjson.dumps(value).decode()[:_LONGEST] if value else ""
    except TypeError:  # an integer of more than 64 bits, or half a surrogate pair
        return repr(value)[:_LONGEST]


async def _is_changed(path: Path, *, since: int, stop: asyncio.Event) -> bool:
    """Wait until one of the files was changed after that time; False if the process is to stop before."""
    seen = Snapshot(taken_at=since)
    while True:
        watched = await asyncio.to_thread(_plan_of, path)
        async with Watcher(watched, poll=_POLL) as watcher:
            now = await asyncio.to_thread(watched.snapshot)
            if await asyncio.to_thread(now.differs_from, seen):
                return True
            seen = now
            if await _stopped_before(watcher, stop):
                return False


async def _stopped_before(watcher: Watcher, stop: asyncio.Event) -> bool:
    waiting = [asyncio.create_task(watcher.hint()), asyncio.create_task(stop.wait())]
    try:
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
    return stop.is_set()


@contextmanager
def _stop_signals() -> Iterator[asyncio.Event]:
    """Set by SIGINT and SIGTERM."""
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    for number in _SIGNALS:
        loop.add_signal_handler(number, stop.set)
    try:
        yield stop
    finally:
        for number in _SIGNALS:
            loop.remove_signal_handler(number)


def _plan_of(path: Path) -> WatchPlan:
    """What matters of a configuration that cannot be served, as far as it can be read."""
    itself = WatchPlan(
        files=frozenset({path}),
        directories=frozenset({path if is_directory(path) else path.parent}),
        patterns=frozenset(FilePattern(path.absolute(), f"*{suffix}") for suffix in SUFFIXES),
    )
    try:
        loaded = load(path)
    except ConfigError:
        return itself
    plugins = frozenset(loaded.root / directory for directory in loaded.document.plugins)
    return itself | WatchPlan(
        files=frozenset(loaded.files),
        directories=loaded.directories,
        patterns=frozenset(loaded.globs),
        trees=loaded.trees | plugins,
    )
