"""Say what serving one file in place of another would change, and for whom. Pure.

What is compared are pictures (`Picture`), so that the old one may be that of a daemon that runs elsewhere.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from difflib import unified_diff
from enum import StrEnum
from itertools import islice
from typing import Final

import yaml

from gateway.app.offer import FIXED_SECTIONS, LOOKED_UP
from gateway.app.reports.picture import KINDS, Audience, Picture
from gateway.json_types import Json

_CONTEXT: Final = 1
"""Lines around a change that are shown."""
_NOBODY: Final = Audience(names={}, fingerprints={})


class Sign(StrEnum):
    ADDED = "+"
    CHANGED = "~"
    REMOVED = "-"


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One definition, connection or section that is not as it was."""

    sign: Sign
    place: str
    """Where it stands: `tools.deploy`."""
    what: str
    """In a few words: its keys that changed, or what else there is to say."""
    difference: tuple[str, ...] = ()
    """Lines of the file that begin with `+`, `-` or a space."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """What some callers notice."""

    gains: tuple[str, ...]
    loses: tuple[str, ...]
    announced: tuple[str, ...]
    """Lists whose change is announced to them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    changes: tuple[Change, ...]
    effects: Mapping[str, Effect]
    """By who would notice something."""
    restart_required: tuple[str, ...]
    """Sections that only a start takes up."""

    @property
    def is_empty(self) -> bool:
        return not self.changes and not self.effects

    def as_json(self) -> dict[str, Json]:
        return asdict(self)


def plan(old: Picture, new: Picture) -> Plan:
    """Compare what is served with what would be."""
    return Plan(
        changes=tuple(_changes(old, new)),
        effects=dict(_effects(old, new)),
        restart_required=tuple(
            section for section in FIXED_SECTIONS if _fixed(old.written, section) != _fixed(new.written, section)
        ),
    )


def _fixed(written: Mapping[str, Json], section: str) -> Json:
    """What of a section only a start takes up: each call looks up some limits, each handshake its certificate."""
    said = written.get(section, {})
    if section == "limits":
        return {key: value for key, value in said.items() if key not in LOOKED_UP}
    return {**said, "tls": said.get("tls") is not None}


def _changes(old: Picture, new: Picture) -> Iterator[Change]:
    heirs = _heirs(new)
    for place in (*new.written, *(place for place in old.written if place not in new.written)):
        before, after = old.written.get(place), new.written.get(place)
        if before is None:
            what = new.left_out.get(place)
            note = "new" if what is None else f"new, but left out: {what}"
            yield Change(sign=Sign.ADDED, place=place, what=note, difference=_difference(None, after))
        elif after is None:
            heir = heirs.get(place)
            note = "removed" if heir is None else f"removed; its name still works, for {heir}"
            yield Change(sign=Sign.REMOVED, place=place, what=note)
        elif what := "; ".join(_reasons(place, old, new)):
            yield Change(sign=Sign.CHANGED, place=place, what=what, difference=_difference(before, after))


def _heirs(picture: Picture) -> dict[str, str]:
    """What an old name, as a place, stands for now."""
    return {
        f"{place.partition('.')[0]}.{alias}": place
        for place, written in picture.written.items()
        if place.partition(".")[0] in KINDS
        for alias in written.get("aliases", ())
    }


def _reasons(place: str, old: Picture, new: Picture) -> Iterator[str]:
    if keys := list(_changed_keys(old.written[place], new.written[place])):
        yield ", ".join(keys)
    if old.code.get(place) != new.code.get(place) and place in old.code and place in new.code:
        yield "the code of its plugin"
    before, after = old.left_out.get(place), new.left_out.get(place)
    if before != after:
        yield "is on offer again" if after is None else f"is left out: {after}"


def _changed_keys(before: Json, after: Json) -> Iterator[str]:
    """Keys that differ; of a mapping on both sides, the keys in it."""
    for key in dict.fromkeys([*before, *after]):
        one, other = before.get(key), after.get(key)
        if one == other and (key in before) == (key in after):
            continue
        if isinstance(one, dict) and isinstance(other, dict):
            yield from (
                f"{key}.{inner}" for inner in dict.fromkeys([*one, *other]) if one.get(inner) != other.get(inner)
            )
        else:
            yield key


def _effects(old: Picture, new: Picture) -> Iterator[tuple[str, Effect]]:
    for name in dict.fromkeys([*old.audiences, *new.audiences]):
        before, after = old.audiences.get(name, _NOBODY), new.audiences.get(name, _NOBODY)
        seen_before, seen_after = _places(before), _places(after)
        effect = Effect(
            gains=tuple(place for place in seen_after if place not in seen_before),
            loses=tuple(place for place in seen_before if place not in seen_after),
            announced=tuple(kind for kind in KINDS if before.fingerprints.get(kind) != after.fingerprints.get(kind)),
        )
        if effect.gains or effect.loses or effect.announced:
            yield name, effect


def _places(audience: Audience) -> dict[str, None]:
    return dict.fromkeys(f"{kind}.{name}" for kind in KINDS for name in audience.names.get(kind, ()))


def _difference(before: Json, after: Json) -> tuple[str, ...]:
    lines = unified_diff(_lines(before), _lines(after), lineterm="", n=_CONTEXT)
    hunks = islice(lines, 3, None)  # after the names of the files, and where the first one stands
    return tuple("  …" if line.startswith("@@") else line for line in hunks)


def _lines(value: Json) -> Sequence[str]:
    if value is None:
        return ()
    return yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100).splitlines()


class _Dumper(yaml.SafeDumper):
    """Writes YAML as people do: text over several lines as a block."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _text)
