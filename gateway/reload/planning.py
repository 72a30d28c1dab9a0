"""Computes how a new configuration would change the catalog, and which callers would be affected.

Manifests are compared instead of catalogs, because the old manifest can come from another process.
"""

from collections.abc import Iterator, Mapping, Sequence
from difflib import unified_diff
from itertools import islice
from typing import Final, Literal

import msgspec
import yaml

from gateway.catalog.manifest import Audience, Manifest
from gateway.config.models.document import LISTS
from gateway.json_types import ABSENT, Json, JsonObject
from gateway.reload.pipeline import FIXED_SECTIONS, fixed

_CONTEXT: Final = 1
# Represents an audience that only one configuration has.
_NO_AUDIENCE: Final = Audience(names={}, fingerprints={})


Sign = Literal["+", "~", "-"]

WORDS: Final[Mapping[Sign, str]] = {"+": "added", "~": "changed", "-": "removed"}


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """A definition, connection or section that differs."""

    sign: Sign
    place: str
    """The path in the configuration, such as `tools.deploy`."""
    what: str
    """The keys that differ, or another short description of the difference."""
    difference: tuple[str, ...] = ()


class Effect(msgspec.Struct, frozen=True, kw_only=True):
    """The changes for callers with the same scopes."""

    gains: tuple[str, ...]
    loses: tuple[str, ...]
    announced: tuple[str, ...]


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    changes: tuple[Change, ...]
    effects: Mapping[str, Effect]
    restart_required: tuple[str, ...]
    """Sections that require a restart."""

    @property
    def is_empty(self) -> bool:
        return not self.changes and not self.effects

    def as_json(self) -> dict[str, Json]:
        found: dict[str, Json] = msgspec.to_builtins(self)
        return found


def plan(old: Manifest, new: Manifest) -> Plan:
    return Plan(
        changes=tuple(_changes(old, new)),
        effects=dict(_effects(old, new)),
        restart_required=tuple(
            name for name in FIXED_SECTIONS if fixed(old.written.get(name, {})) != fixed(new.written.get(name, {}))
        ),
    )


def _changes(old: Manifest, new: Manifest) -> Iterator[Change]:
    for place in (*new.written, *(place for place in old.written if place not in new.written)):
        before, after = old.written.get(place), new.written.get(place)
        if before is None:
            what = new.left_out.get(place)
            note = "new" if what is None else f"new, but not available: {what}"
            yield Change(sign="+", place=place, what=note, difference=_difference(None, after))
        elif after is None:
            yield Change(sign="-", place=place, what="removed")
        elif what := "; ".join(_reasons(place, old, new)):
            yield Change(sign="~", place=place, what=what, difference=_difference(before, after))
    for place, reason in new.left_out.items():  # Operations of an OpenAPI document without a definition.
        if place not in new.written and place not in old.written and old.left_out.get(place) != reason:
            yield Change(sign="~" if place in old.left_out else "+", place=place, what=f"not available: {reason}")


def _reasons(place: str, old: Manifest, new: Manifest) -> Iterator[str]:
    if keys := list(_changed_keys(old.written[place], new.written[place])):
        yield ", ".join(keys)
    if old.code.get(place) != new.code.get(place) and place in old.code and place in new.code:
        yield "the plugin code"
    before, after = old.left_out.get(place), new.left_out.get(place)
    if before != after:
        yield "is available again" if after is None else f"is not available: {after}"


def _changed_keys(before: JsonObject, after: JsonObject) -> Iterator[str]:
    for key in _differing(before, after):
        one, other = before.get(key), after.get(key)
        if isinstance(one, dict) and isinstance(other, dict):
            yield from (f"{key}.{inner}" for inner in _differing(one, other))
        else:
            yield key


def _differing(before: JsonObject, after: JsonObject) -> Iterator[str]:
    keys = dict.fromkeys([*before, *after])
    return (key for key in keys if before.get(key, ABSENT) != after.get(key, ABSENT))


def _effects(old: Manifest, new: Manifest) -> Iterator[tuple[str, Effect]]:
    for name in dict.fromkeys([*old.audiences, *new.audiences]):
        before, after = old.audiences.get(name, _NO_AUDIENCE), new.audiences.get(name, _NO_AUDIENCE)
        seen_before, seen_after = _places(before), _places(after)
        effect = Effect(
            gains=tuple(place for place in seen_after if place not in seen_before),
            loses=tuple(place for place in seen_before if place not in seen_after),
            announced=tuple(kind for kind in LISTS if before.fingerprints.get(kind) != after.fingerprints.get(kind)),
        )
        if effect.gains or effect.loses or effect.announced:
            yield name, effect


def _places(audience: Audience) -> dict[str, None]:
    return dict.fromkeys(f"{kind}.{name}" for kind in LISTS for name in audience.names.get(kind, ()))


def _difference(before: Json, after: Json) -> tuple[str, ...]:
    lines = unified_diff(_lines(before), _lines(after), lineterm="", n=_CONTEXT)
    hunks = islice(lines, 3, None)  # Without `---`, `+++` and the first `@@`.
    return tuple("  …" if line.startswith("@@") else line for line in hunks)


def _lines(value: Json) -> Sequence[str]:
    if value is None:
        return ()
    return yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100).splitlines()


class _Dumper(yaml.SafeDumper):
    """YAML dumper that writes multi-line strings as literal blocks (`|`)."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _text)
