"""Records the last reloads with their changes, affected clients and problems.

The changes are the same as in `mcp-gateway plan`. A thread computes them, because comparing ten thousand tools is slow.
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
from gateway.console.event_feed import EventFeed
from gateway.console.responses import milliseconds, problem_json
from gateway.json_types import JsonObject
from gateway.reload.pipeline import ReloadPipeline
from gateway.reload.planning import WORDS, Change, Plan, plan
from gateway.reload.reloader import ReloadStatus
from gateway.rfc3339 import timestamp

log: Final = structlog.get_logger(__name__)

MAX_RELOADS: Final = 20
MAX_CHANGES: Final = 500
"""Maximum recorded changes per reload. Further changes are only counted."""
_MAX_LINES: Final = 40
_VIEW: Final = "view "
_KINDS: Final = frozenset({*LISTS, "skills", "connections", "databases", "views"})
"""Sections whose entries are recorded by the name of their kind, such as `tool`."""


class ReloadHistory:
    def __init__(self, pipeline: ReloadPipeline, *, feed: EventFeed, redactor: LiveRedactor) -> None:
        self._redactor: Final = redactor
        self._pipeline: Final = pipeline
        self._feed: Final = feed
        self._reloads: Final[deque[JsonObject]] = deque(maxlen=MAX_RELOADS)
        self._served: Manifest | None = None
        self._one_at_a_time: Final = asyncio.Lock()
        self._tasks: Final = BackgroundTasks()

    def record(self, status: ReloadStatus) -> None:
        """Capture the served configuration and record the reload in a background task."""
        served = self._pipeline.served
        make = partial(manifest, served.document, served.catalog)
        self._tasks.begin(
            self._record(status, make, generation=self._pipeline.store.current.generation), name="record of a reload"
        )

    def listed(self) -> Sequence[JsonObject]:
        return list(reversed(self._reloads))

    async def close(self) -> None:
        await self._tasks.cancel()

    async def _record(self, status: ReloadStatus, make: Callable[[], Manifest], *, generation: int) -> None:
        # Each reload is compared with the previous reload, so reloads are processed in order.
        async with self._one_at_a_time:
            try:
                compared = partial(_compared, status, self._served, make, generation=generation)
                self._served, reload = await asyncio.to_thread(compared)
            except Exception:  # Boundary: an error here must not affect reloads
                log.exception("reload not recorded")
                return
            reload = {**reload, "problems": self._redactor.json(reload["problems"])}
            self._reloads.append(reload)
            self._feed.publish("reload", reload)


def _compared(
    status: ReloadStatus, before: Manifest | None, make: Callable[[], Manifest], *, generation: int
) -> tuple[Manifest | None, JsonObject]:
    """Return the manifest that is now served, and the `Reload` object of the API. Run this in a thread."""
    after = make() if status.is_good else before
    found = None
    if before is not None and after is not None and before is not after:
        found = plan(before, after)
    changes = () if found is None else found.changes
    views = _listed_by_view(each for each in (before, after) if each is not None)
    return after, {
        "at": timestamp(status.at.timestamp()),
        "generation": generation,
        "outcome": _outcome(status, found),
        "trigger": status.trigger,
        "ms": milliseconds(status.seconds),
        "changes": [_change(each, views) for each in changes[:MAX_CHANGES]],
        "changesOmitted": max(0, len(changes) - MAX_CHANGES),
        "noticedBy": {} if found is None else {name: list(each.announced) for name, each in found.effects.items()},
        "problems": [problem_json(each) for each in status.problems],
    }


def _outcome(status: ReloadStatus, found: Plan | None) -> str:
    if not status.is_good:
        return "refused"
    is_unchanged = status.trigger != "start" and (found is None or found.is_empty)
    return "unchanged" if is_unchanged else "loaded"


def _change(change: Change, views: Mapping[str, set[tuple[str, str]]]) -> JsonObject:
    section, _, name = change.place.partition(".")
    listing = sorted(view for view, names in views.items() if (section, name) in names)
    return {
        "change": WORDS[change.sign],
        "kind": section.removesuffix("s") if section in _KINDS else "section",
        "name": name or section,
        "views": listing if section in LISTS and views else None,
        "detail": change.what or None,
        "difference": list(change.difference[:_MAX_LINES]),
    }


def _listed_by_view(manifests: Iterable[Manifest]) -> Mapping[str, set[tuple[str, str]]]:
    listed: dict[str, set[tuple[str, str]]] = {}
    for audience, lists in (found for each in manifests for found in each.audiences.items()):
        if audience.startswith(_VIEW):
            names = listed.setdefault(audience.removeprefix(_VIEW), set())
            names.update((kind, name) for kind in LISTS for name in lists.names.get(kind, ()))
    return listed
