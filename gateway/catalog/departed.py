"""What a reload took off the lists lately, so that who still asks for it learns why it is gone.

Only what was on offer is remembered, and nothing of it but its name: a model that was told of a tool a minute ago mends
its call when it hears that the tool has another name now, and would call again and again otherwise.
"""

import time
from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, get_args

import orjson

from gateway.catalog.primitives import Catalog, Primitive, ResourceTemplate, UriMatcher
from gateway.plugin import ListKind

REMEMBERED: Final = timedelta(minutes=10)
MOST: Final = 1000
"""Names. Of a larger departure the rest are as unknown as any."""

_KINDS: Final[tuple[ListKind, ...]] = get_args(ListKind)
_NAMES: Final = frozenset({"name", "title", "uri", "uriTemplate"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Departure:
    at: float
    now_called: str | None
    """The name or URI that it has now, if it has only been given another one."""
    matcher: UriMatcher | None = None
    """Of a resource template."""
    scopes: frozenset[str] = frozenset()
    """What was needed to see it."""


class Departed:
    """Names that went, for ten minutes."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock: Final = clock
        self._departures: dict[tuple[ListKind, str], Departure] = {}
        """The oldest first."""

    def note(self, old: Catalog, new: Catalog) -> None:
        """Remember what `new` no longer has, and forget what it has again."""
        departures = {key: each for key, each in self._departures.items() if self._is_recent(each)}
        for kind in _KINDS:
            working = _callable(new, kind)
            departures |= {(kind, name): each for name, each in self._gone(kind, old, new, working=working)}
            for name in working:
                departures.pop((kind, name), None)
        self._departures = dict(list(departures.items())[-MOST:])

    def find(self, kind: ListKind, name: str) -> Departure | None:
        """What became of a name or URI, or of the template that served it."""
        if (departure := self._departures.get((kind, name))) is not None:
            return departure if self._is_recent(departure) else None
        if kind != "resources":
            return None
        matching = (each for each in self._departures.values() if each.matcher and each.matcher.match(name) is not None)
        return next(filter(self._is_recent, matching), None)

    def _gone(
        self, kind: ListKind, old: Catalog, new: Catalog, *, working: Container[str]
    ) -> Iterator[tuple[str, Departure]]:
        before, after = _listed(old, kind), _listed(new, kind)
        successors = _successors(before, after)
        for name, key in _callable(old, kind).items():
            if name not in working:
                primitive = before[key]
                yield (
                    name,
                    Departure(
                        at=self._clock(),
                        now_called=key if key in after else successors.get(key),
                        matcher=primitive.matcher if isinstance(primitive, ResourceTemplate) else None,
                        scopes=frozenset() if primitive.access.is_visible else primitive.access.scopes,
                    ),
                )

    def _is_recent(self, departure: Departure) -> bool:
        return self._clock() < departure.at + REMEMBERED.total_seconds()


def _listed(catalog: Catalog, kind: ListKind) -> Mapping[str, Primitive]:
    match kind:
        case "tools":
            return catalog.tools
        case "prompts":
            return catalog.prompts
        case "resources":
            templates = {template.uri_template: template for template in catalog.resource_templates}
            return {**catalog.resources, **templates}


def _callable(catalog: Catalog, kind: ListKind) -> dict[str, str]:
    """Every name that works → the name in the list."""
    listed = _listed(catalog, kind)
    aliases = catalog.aliases.get(kind, {})
    return {**{name: name for name in listed}, **{alias: key for alias, key in aliases.items() if key in listed}}


def _successors(before: Mapping[str, Primitive], after: Mapping[str, Primitive]) -> Mapping[str, str]:
    """Old name → new name, where exactly one that went and one that came are described in the same words."""
    gone = _by_description({name: before[name] for name in before.keys() - after.keys()})
    come = _by_description({name: after[name] for name in after.keys() - before.keys()})
    return {
        names[0]: come[words][0] for words, names in gone.items() if len(names) == 1 and len(come.get(words, ())) == 1
    }


def _by_description(primitives: Mapping[str, Primitive]) -> dict[bytes, list[str]]:
    named: dict[bytes, list[str]] = {}
    for name, words in _descriptions(primitives):
        named.setdefault(words, []).append(name)
    return named


def _descriptions(primitives: Mapping[str, Primitive]) -> Iterator[tuple[str, bytes]]:
    """What is said of each but for its name; nothing of one that is hardly described."""
    for name, primitive in primitives.items():
        definition = primitive.definition
        if "description" in definition or "size" in definition:  # a file has its size and time
            words = {key: value for key, value in definition.items() if key not in _NAMES}
            yield name, orjson.dumps(words, option=orjson.OPT_SORT_KEYS)
