"""Remembers removed and renamed primitives, so that errors for later calls can explain the change.

A model that uses an old name can then correct its call instead of repeating it.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from typing import Final

import msgspec
import orjson

from gateway import exact_json
from gateway.catalog.catalog import Catalog
from gateway.catalog.primitives import Primitive, ResourceTemplate, TemplateMatcher
from gateway.config.models.document import LISTS
from gateway.plugin import ListKind

LIFETIME: Final = timedelta(minutes=10)
MAX_TOMBSTONES: Final = 1000

_NAMES: Final = frozenset({"name", "title", "uri", "uriTemplate"})


class Tombstone(msgspec.Struct, frozen=True, kw_only=True):
    at: float
    now_called: str | None
    """The new name or URI of a renamed primitive."""
    matcher: TemplateMatcher | None = None
    """Set for resource templates."""
    scopes: frozenset[str] = frozenset()
    """Scopes that were required to see the primitive."""
    tags: tuple[str, ...] = ()
    """Tags, which determine its views."""


TombstonesByName = Mapping[tuple[ListKind, str], Tombstone]


class Tombstones:
    """Remembers removed names for ten minutes."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock: Final = clock
        self._tombstones: dict[tuple[ListKind, str], Tombstone] = {}
        """Oldest first."""

    def note(self, old: Catalog, new: Catalog, *, gone: TombstonesByName | None = None) -> None:
        """Remember the names missing in `new`, and forget those that it contains. `gone` can be computed in advance."""
        tombstones = {key: each for key, each in self._tombstones.items() if self._is_recent(each)}
        tombstones |= self.gone(old, new) if gone is None else gone
        working = {kind: _callable(new, kind) for kind in {kind for kind, _ in tombstones}}
        # A name can reappear as another primitive or as an alias.
        tombstones = {key: each for key, each in tombstones.items() if key[1] not in working[key[0]]}
        self._tombstones = dict(list(tombstones.items())[-MAX_TOMBSTONES:])

    def gone(self, old: Catalog, new: Catalog) -> TombstonesByName:
        """Return the names missing in `new`, up to the limit. Slow if many are missing."""
        found = {(kind, name): each for kind in LISTS for name, each in self._gone(kind, old, new)}
        return dict(list(found.items())[-MAX_TOMBSTONES:])

    def find(self, kind: ListKind, name: str) -> Tombstone | None:
        """Return the tombstone of a name or URI, or of a template that matched the URI."""
        if (tombstone := self._tombstones.get((kind, name))) is not None:
            return tombstone if self._is_recent(tombstone) else None
        if kind != "resources":
            return None
        matching = (each for each in self._tombstones.values() if each.matcher and each.matcher.match(name) is not None)
        return next(filter(self._is_recent, matching), None)

    def _gone(self, kind: ListKind, old: Catalog, new: Catalog) -> Iterator[tuple[str, Tombstone]]:
        working = _callable(new, kind)
        gone = {name: key for name, key in _callable(old, kind).items() if name not in working}
        if not gone:
            return
        before, after = _listed(old, kind), _listed(new, kind)
        successors = _successors(before, after)
        for name, key in gone.items():
            primitive = before[key]
            yield (
                name,
                Tombstone(
                    at=self._clock(),
                    # An alias can be removed while its primitive still exists.
                    now_called=key if key in after else successors.get(key),
                    matcher=primitive.matcher if isinstance(primitive, ResourceTemplate) else None,
                    # Every caller could see a visible primitive.
                    scopes=frozenset() if primitive.access.is_visible else primitive.access.scopes,
                    tags=primitive.tags,
                ),
            )

    def _is_recent(self, tombstone: Tombstone) -> bool:
        return self._clock() < tombstone.at + LIFETIME.total_seconds()


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
    """Return the listed name for each name and alias."""
    listed = _listed(catalog, kind)
    aliases = catalog.aliases.get(kind, {})
    return {**{name: name for name in listed}, **{alias: key for alias, key in aliases.items() if key in listed}}


def _successors(before: Mapping[str, Primitive], after: Mapping[str, Primitive]) -> Mapping[str, str]:
    """Return the new name for each old name, if exactly one added primitive has the same description."""
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
    """Yield each definition without its names. Primitives with too little description are skipped."""
    for name, primitive in primitives.items():
        definition = primitive.definition
        if "description" in definition or "size" in definition:  # files have a size and a time
            words = {key: value for key, value in definition.items() if key not in _NAMES}
            yield name, exact_json.dumps(words, option=orjson.OPT_SORT_KEYS)
