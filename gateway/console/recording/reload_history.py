"""Records the last reloads: what each added, changed and removed, for whom, and what kept it from being served.

What is served before and after is compared as `mcp-gateway plan` does it, in a thread: ten thousand tools take a while.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Final

import structlog

from gateway.background_tasks import BackgroundTasks
from gateway.catalog.manifest import Manifest, manifest
from gateway.config.models.document import LISTS
from gateway.config.secrets.redactor import LiveRedactor
from gateway.console.json_forms import milliseconds, problem_json
from gateway.console.recording.event_feed import EventFeed
from gateway.json_types import JsonObject
from gateway.reload.pipeline import ReloadPipeline
from gateway.reload.planning import Change, Plan, plan
from gateway.reload.reloader import ReloadAttempt, ReloadStatus, Trigger
from gateway.rfc3339 import timestamp

log: Final = structlog.get_logger(__name__)

MAX_RELOADS: Final = 20
MAX_CHANGES: Final = 500
"""Of one reload; the rest is counted."""
_MAX_LINES: Final = 40
"""Of the difference of one definition."""
_VIEW: Final = "view "
_NOUNS: Final[Mapping[str, str]] = {
    "tools": "tool",
    "resources": "resource",
    "prompts": "prompt",
    "skills": "skill",
    "connections": "connection",
    "databases": "database",
    "views": "view",
}


class ReloadHistory:
    """The newest reloads, the start of the daemon among them."""

    def __init__(self, pipeline: ReloadPipeline, *, feed: EventFeed, redactor: LiveRedactor) -> None:
        self._redactor: Final = redactor
        self._pipeline: Final = pipeline
        self._feed: Final = feed
        self._reloads: Final[deque[tuple[int, JsonObject]]] = deque(maxlen=MAX_RELOADS)
        self._served: Manifest | None = None
        self._one_at_a_time: Final = asyncio.Lock()
        self._tasks: Final = BackgroundTasks()

    def start(self, status: ReloadStatus) -> None:
        """Begin with what is served now."""
        self.attempted(ReloadAttempt(status=status, trigger=Trigger.START, seconds=0.0))

    def attempted(self, attempt: ReloadAttempt) -> None:
        """Record a reload. What is served is taken now; the comparison follows."""
        served = self._pipeline.served
        # The objects of now: a reload that follows must not change what this one is compared as.
        make = partial(manifest, served.document, served.catalog)
        self._tasks.begin(
            self._record(attempt, make, generation=self._pipeline.store.current.generation), name="record of a reload"
        )

    def listed(self) -> Sequence[JsonObject]:
        """Return the reloads, the newest first."""
        return [reload for _, reload in reversed(self._reloads)]

    def since(self, number: int) -> list[tuple[int, JsonObject]]:
        """Return the reloads after a number, oldest first."""
        return [found for found in self._reloads if found[0] > number]

    async def close(self) -> None:
        await self._tasks.cancel()

    async def _record(self, attempt: ReloadAttempt, make: Callable[[], Manifest], *, generation: int) -> None:
        # Each is compared with the one before: two reloads in quick succession must be taken in their order.
        async with self._one_at_a_time:
            try:
                compared = partial(_compared, attempt, self._served, make, generation=generation)
                self._served, reload = await asyncio.to_thread(compared)
            except Exception:  # Boundary: a bug in what is shown must cost nothing else.
                log.exception("reload not recorded")
                return
            reload = {**reload, "problems": self._redactor.json(reload["problems"])}
            number = self._feed.numbers.next()
            self._reloads.append((number, reload))
            self._feed.publish("reload", reload, number=number)


def _compared(
    attempt: ReloadAttempt, before: Manifest | None, make: Callable[[], Manifest], *, generation: int
) -> tuple[Manifest | None, JsonObject]:
    """Return what is served now, and `Reload` of the API. May take long."""
    after = make() if attempt.status.is_good else before
    found = None
    if before is not None and after is not None and before is not after:
        found = plan(before, after)
    changes = () if found is None else found.changes
    views = _listed_by_view(each for each in (before, after) if each is not None)
    return after, {
        "at": timestamp(attempt.status.at.timestamp()),
        "generation": generation,
        "outcome": _outcome(attempt, found),
        "trigger": attempt.trigger.value,
        "ms": milliseconds(attempt.seconds),
        "changes": [_change(each, views) for each in changes[:MAX_CHANGES]],
        "changesOmitted": max(0, len(changes) - MAX_CHANGES),
        "noticedBy": {} if found is None else {name: list(each.announced) for name, each in found.effects.items()},
        "problems": [problem_json(each) for each in attempt.status.problems],
    }


def _outcome(attempt: ReloadAttempt, found: Plan | None) -> str:
    if not attempt.status.is_good:
        return "refused"
    is_unchanged = attempt.trigger is not Trigger.START and (found is None or found.is_empty)
    return "unchanged" if is_unchanged else "loaded"


def _change(change: Change, views: Mapping[str, set[tuple[str, str]]]) -> JsonObject:
    section, _, name = change.place.partition(".")
    # None where there are no views, or the change is on no list.
    listing = sorted(view for view, names in views.items() if (section, name) in names)
    return {
        "change": change.sign.word,
        "kind": _NOUNS.get(section, "section"),
        "name": name or section,
        "views": listing if section in LISTS and views else None,
        "detail": change.what or None,
        "difference": list(change.difference[:_MAX_LINES]),
    }


def _listed_by_view(manifests: Iterable[Manifest]) -> Mapping[str, set[tuple[str, str]]]:
    """The definitions, each a section and a name, that each view lists in one of these."""
    listed: dict[str, set[tuple[str, str]]] = {}
    for audience, lists in (found for each in manifests for found in each.audiences.items()):
        if audience.startswith(_VIEW):
            names = listed.setdefault(audience.removeprefix(_VIEW), set())
            names.update((kind, name) for kind in LISTS for name in lists.names.get(kind, ()))
    return listed
