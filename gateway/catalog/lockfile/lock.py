"""The lock file, and the comparison of its digests with those of the current definitions.

Threat: an edit in an included file or a plugin changes definitions after their review. With `server.lock: enforce`, a
changed definition is not compiled and its plugin not imported until the lock is written again.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import msgspec

from gateway.catalog.lockfile.digests import CLAIMS, PAGES, SKILLS, DefinitionDigest, DefinitionDigests, Name
from gateway.config.diagnostics.problems import Problems
from gateway.config.loader import LOCK_NAME
from gateway.config.models.document import LISTS
from gateway.config.reading.source_file import UnreadableError, decode, read_bytes
from gateway.config.reading.source_map import Origin
from gateway.json_types import DocumentPath, Json, JsonObject

COMMAND: Final = "mcp-gateway lock"

_MOST_NAMED: Final = 9
"""The number of other definitions that one warning names."""
_VERSION: Final = 1
_OFFERED: Final = "offered"
_KINDS: Final = {"tools", "resources", "templates", "prompts"}
_SECTIONS: Final = ("server", *LISTS, SKILLS, CLAIMS, PAGES)


class LockChange(StrEnum):
    ADDED = "added"
    CHANGED = "changed"
    REMOVED = "removed"
    UNPINNED = "unpinned"
    """The lock was written by a version without origins."""


_EFFECTS: Final = {
    LockChange.ADDED: "is not served",
    # `catalog.keep_locked` keeps the locked version if the process still has it.
    LockChange.CHANGED: "is served in its locked version, or not at all",
    LockChange.REMOVED: "is not served",
    LockChange.UNPINNED: "is served, regardless of its origin",
}
"""The effect of each change if the lock is enforced."""


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """A definition that differs from the lock."""

    name: Name
    change: LockChange
    parts: tuple[str, ...] = ()
    """The parts that have changed."""

    def __str__(self) -> str:
        return f"{'.'.join(self.name)} {self.how}"

    @property
    def how(self) -> str:
        if self.change is LockChange.UNPINNED:
            return f"has no origin in {LOCK_NAME}; run `{COMMAND}` to add origins"
        parts = f" ({', '.join(self.parts)})" if self.parts else ""
        return f"was {self.change}{parts} since {LOCK_NAME} was written"


class Lock(msgspec.Struct, frozen=True, kw_only=True):
    """The content of the lock file, which is next to the main file."""

    path: Path
    pins: DefinitionDigests | None
    """None if the file does not exist or cannot be used."""
    problem: str = ""
    """The reason why the file cannot be used."""
    offered: Mapping[str, Mapping[str, list[JsonObject]]] = msgspec.field(default_factory=dict)
    """The locked lists of each server in wire form, by the server's name."""
    excludes: bool = True
    """Whether enforcement leaves out definitions that differ. False only reports them."""

    def compare(
        self,
        pins: DefinitionDigests,
        *,
        is_enforced: bool,
        problems: Problems,
        is_hidden: Callable[..., bool],
    ) -> tuple[Difference, ...]:
        """Report problems with the lock and differences from it. Equal differences share one warning.

        Pages, and definitions that `is_hidden` by an error in the files, are unknown here and were not removed.
        """
        place = problems.at("server", "lock")
        if self.pins is None:
            if is_enforced:
                reason = self.problem or f"there is no {self.path}"
                place.error(f"`enforce` needs a lock, and {reason}; write it with `{COMMAND}`")
            elif self.problem:
                place.warning(f"{self.problem}; recreate it with `{COMMAND}`")
            return ()
        found = tuple(
            each
            for each in differences(pins, self.pins)
            if each.change is not LockChange.REMOVED or not (each.name[0] == PAGES or is_hidden(*each.name))
        )
        alike: dict[str, list[Difference]] = {}
        for each in found:
            alike.setdefault(each.how, []).append(each)
        for first, *others in alike.values():
            where = place if first.change is LockChange.REMOVED else problems.at(*first.name)
            where.warning(_warning(first, others, is_enforced=is_enforced))
        return found


def read_lock(path: Path) -> Lock:
    """Read a lock file (`LoadedConfig.lock_file`). Blocking."""
    if not path.exists():
        return Lock(path=path, pins=None)
    try:
        text = decode(read_bytes(path))
        return Lock(path=path, pins=parsed(text), offered=_offered_in(text))
    except UnreadableError as error:
        return Lock(path=path, pins=None, problem=f"{path} {error}")
    except ValueError as error:
        return Lock(path=path, pins=None, problem=f"{path} is not a lock: {error}")


def parsed(text: str) -> dict[Name, DefinitionDigest]:
    """Return the pins in the text of a lock.

    Raises:
        ValueError: the text is not a lock of this version.
    """
    content = json.loads(text)
    if not isinstance(content, dict) or "version" not in content:
        raise ValueError("expected an object with a `version`")
    if content["version"] != _VERSION:
        raise ValueError(f"its version is {content['version']!r}, and this is mcp-gateway's version {_VERSION}")
    pins: dict[Name, DefinitionDigest] = {}
    for section in _SECTIONS:
        for name, parts in _mapping(content.get(section, {}), section).items():
            pins[section, name] = {part: str(digest) for part, digest in _mapping(parts, f"{section}.{name}").items()}
    return pins


def _offered_in(text: str) -> Mapping[str, Mapping[str, list[JsonObject]]]:
    """Raises: ValueError: the lists are malformed."""
    try:
        found: Mapping[str, Mapping[str, list[JsonObject]]] = msgspec.convert(
            json.loads(text).get(_OFFERED, {}), dict[str, dict[str, list[dict[str, Any]]]]
        )
    except msgspec.ValidationError as error:
        raise ValueError(f"`{_OFFERED}`: {error}") from error
    if unknown := {kind for lists in found.values() for kind in lists} - _KINDS:
        raise ValueError(f"`{_OFFERED}` has the unknown lists {', '.join(sorted(unknown))}")
    return found


def offered_by(origins: Mapping[DocumentPath, Origin]) -> dict[str, dict[str, list[JsonObject]]]:
    """Collect the lists of other servers, so that the locked version of a definition can be served after a restart."""
    found: dict[str, dict[str, list[JsonObject]]] = {}
    for name, origin in sorted(origins.items()):
        if origin.path[0] == "upstreams":
            wire = origin.written[0]
            kind = "templates" if "uriTemplate" in wire else str(name[0])
            found.setdefault(str(origin.path[1]), {}).setdefault(kind, []).append(wire)
    return found


def rendered(pins: DefinitionDigests, *, offered: Mapping[str, Json] = MappingProxyType({})) -> str:
    """Return the text of a lock: a line for each part, ordered by name."""
    content: dict[str, Json] = {"version": _VERSION, **({_OFFERED: offered} if offered else {})}
    for (section, name), pin in pins.items():
        content.setdefault(section, {})[name] = dict(pin)
    return json.dumps(content, indent=2, sort_keys=True) + "\n"


def differences(now: DefinitionDigests, locked: DefinitionDigests) -> tuple[Difference, ...]:
    """Compare the definitions with the locked ones, ordered by name."""
    return tuple(
        difference for name in sorted(now.keys() | locked.keys()) if (difference := _between(name, now, locked))
    )


def summary(found: Sequence[Difference]) -> str:
    """Return a count such as `2 added, 1 changed`."""
    counts = {change: sum(each.change is change for each in found) for change in LockChange}
    return ", ".join(f"{count} {change}" for change, count in counts.items() if count)


def _warning(first: Difference, others: Sequence[Difference], *, is_enforced: bool) -> str:
    """Return the message about definitions with the same difference, reported at the place of the first."""
    subject = f"`{'.'.join(first.name)}` " if first.change is LockChange.REMOVED else ""
    effect = f", and {_EFFECTS[first.change]}" if is_enforced else ""
    named = [f"`{'.'.join(each.name)}`" for each in others[:_MOST_NAMED]]
    if len(others) > _MOST_NAMED:
        named.append(f"{len(others) - _MOST_NAMED} more (`{COMMAND} --check` lists them)")
    alike = f"; the same applies to {', '.join(named)}" if named else ""
    if first.change is LockChange.UNPINNED:
        return f"{subject}{first.how}{alike}"
    return f"{subject}{first.how}{effect}{alike}; after a review, run `{COMMAND}`"


def _between(name: Name, now: DefinitionDigests, locked: DefinitionDigests) -> Difference | None:
    if name not in locked:
        return Difference(name=name, change=LockChange.ADDED)
    if name not in now:
        return None if name[0] == CLAIMS else Difference(name=name, change=LockChange.REMOVED)
    first, second = now[name], locked[name]
    parts = sorted(part for part in first.keys() | second.keys() if first.get(part) != second.get(part))
    if parts == ["origin"] and "origin" not in second:
        return Difference(name=name, change=LockChange.UNPINNED)
    return Difference(name=name, change=LockChange.CHANGED, parts=tuple(parts)) if parts else None


def _mapping(value: Json, place: str) -> Mapping[str, Json]:
    if not isinstance(value, dict):
        raise ValueError(f"expected an object as {place}")  # noqa: TRY004 - the file is invalid
    return value
