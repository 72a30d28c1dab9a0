"""Reads the lock file, and compares it with the current definitions.

Threat: after a review, an edit of an included file or a plugin changes definitions. With `server.lock: enforce`,
changed definitions are not compiled, and their plugins are not imported, until the lock file is written again.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Final, Literal

import msgspec

from gateway.catalog.digests import CLAIMS, PAGES, SKILLS, DefinitionDigest, DefinitionDigests, Name
from gateway.config.diagnostics.problems import Problems
from gateway.config.models.document import LISTS
from gateway.config.reading.source_file import UnreadableError, decode, digest_of_json, read_bytes
from gateway.config.reading.source_map import SourceDefinition
from gateway.errors import ExecutionError
from gateway.json_types import DocumentPath, Json, JsonObject

COMMAND: Final = "mcp-gateway lock"

_MOST_NAMED: Final = 9
"""Maximum number of definitions that a warning names after the first one."""
_VERSION: Final = 1
_OFFERED: Final = "offered"
_SECTIONS: Final = ("server", *LISTS, SKILLS, CLAIMS, PAGES)

_Kind = Annotated[str, msgspec.Meta(pattern="^(tools|resources|templates|prompts)$")]
LockChange = Literal["added", "changed", "removed"]


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    name: Name
    change: LockChange
    parts: tuple[str, ...] = ()
    """The parts of the definition that have changed."""

    def __str__(self) -> str:
        return f"{'.'.join(self.name)} {self.how}"

    @property
    def how(self) -> str:
        parts = f" ({', '.join(self.parts)})" if self.parts else ""
        return f"was {self.change}{parts} since the lock was written"


class Lock(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a lock file."""

    path: Path
    pins: DefinitionDigests | None
    """The locked digests, or None if the file does not exist or is unusable."""
    problem: str = ""
    """Why the file is unusable, or "" if the file is valid or missing."""
    offered: Mapping[str, Mapping[str, Sequence[JsonObject]]] = msgspec.field(default_factory=dict)
    """Definitions of each upstream when the lock was written, by upstream and kind, in the format of MCP 2026-07-28."""
    excludes: bool = True
    """Whether changed definitions are left out if the lock is enforced. If false, they are only reported."""

    def compare(
        self,
        pins: DefinitionDigests,
        *,
        is_enforced: bool,
        problems: Problems,
        is_hidden: Callable[..., bool],
    ) -> tuple[Difference, ...]:
        """Warn about all differences from the lock, and return them. Report a missing or unusable lock file.

        A page never counts as removed, because a load does not read pages. Neither does a definition that is missing
        because of an error (`is_hidden`).
        """
        place = problems.at("server", "lock")
        if self.pins is None:
            if is_enforced:
                reason = self.problem or f"{self.path} does not exist"
                place.error(f"`enforce` requires a lock file, but {reason}. Create the lock file with `{COMMAND}`")
            elif self.problem:
                place.warning(f"{self.problem}. Recreate the lock file with `{COMMAND}`")
            return ()
        found = tuple(
            each
            for each in differences(pins, self.pins)
            if each.change != "removed" or not (each.name[0] == PAGES or is_hidden(*each.name))
        )
        alike: dict[str, list[Difference]] = {}
        for each in found:
            alike.setdefault(each.how, []).append(each)
        for first, *others in alike.values():
            where = place if first.change == "removed" else problems.at(*first.name)
            where.warning(_warning(first, others, is_enforced=is_enforced))
        return found


def read_lock(path: Path) -> Lock:
    """Read a lock file. This function blocks."""
    if not path.exists():
        return Lock(path=path, pins=None)
    try:
        found = parsed(decode(read_bytes(path)))
    except UnreadableError as error:
        return Lock(path=path, pins=None, problem=f"{path} {error}")
    except (ValueError, msgspec.ValidationError) as error:
        return Lock(path=path, pins=None, problem=f"{path} is not a lock file: {error}")
    return Lock(path=path, pins=found.pins, offered=found.offered)


class _LockFile(msgspec.Struct, frozen=True):
    version: Literal[1]
    offered: dict[str, dict[_Kind, list[dict[str, Any]]]] = {}
    server: dict[str, dict[str, str]] = {}
    tools: dict[str, dict[str, str]] = {}
    resources: dict[str, dict[str, str]] = {}
    prompts: dict[str, dict[str, str]] = {}
    skills: dict[str, dict[str, str]] = {}
    claims: dict[str, dict[str, str]] = {}
    pages: dict[str, dict[str, str]] = {}

    @property
    def pins(self) -> dict[Name, DefinitionDigest]:
        return {(section, name): parts for section in _SECTIONS for name, parts in getattr(self, section).items()}


def parsed(text: str) -> _LockFile:
    """Parse the text of a lock file.

    Raises:
        ValueError: the text is not JSON.
        msgspec.ValidationError: the file is malformed, or was written by a different version of the gateway.
    """
    return msgspec.convert(json.loads(text), _LockFile)


def offered_by(origins: Mapping[DocumentPath, SourceDefinition]) -> dict[str, dict[str, list[JsonObject]]]:
    """Return the definitions of upstreams, by upstream and kind.

    The lock file contains these definitions, so that locked versions can be served after a restart.
    """
    found: dict[str, dict[str, list[JsonObject]]] = {}
    for name, origin in sorted(origins.items()):
        if origin.path[0] == "upstreams":
            wire = origin.written[0]
            kind = "templates" if "uriTemplate" in wire else str(name[0])
            found.setdefault(str(origin.path[1]), {}).setdefault(kind, []).append(wire)
    return found


def rendered(pins: DefinitionDigests, *, offered: Mapping[str, Json] = MappingProxyType({})) -> str:
    """Return the text of a lock file, with sorted names."""
    content: dict[str, Json] = {"version": _VERSION, **({_OFFERED: offered} if offered else {})}
    for (section, name), pin in pins.items():
        content.setdefault(section, {})[name] = dict(pin)
    return json.dumps(content, indent=2, sort_keys=True) + "\n"


def differences(now: DefinitionDigests, locked: DefinitionDigests) -> tuple[Difference, ...]:
    """Return the differences between the current and the locked digests, sorted by name."""
    return tuple(
        difference for name in sorted(now.keys() | locked.keys()) if (difference := _between(name, now, locked))
    )


def _warning(first: Difference, others: Sequence[Difference], *, is_enforced: bool) -> str:
    subject = f"`{'.'.join(first.name)}` " if first.change == "removed" else ""
    # A source such as an upstream can still serve the locked version.
    what = "the new version" if first.change == "changed" else "it"
    effect = f", so {what} is not served" if is_enforced else ""
    named = [f"`{'.'.join(each.name)}`" for each in others[:_MOST_NAMED]]
    if len(others) > _MOST_NAMED:
        named.append(f"{len(others) - _MOST_NAMED} more (`{COMMAND} --check` lists them)")
    alike = f". The same applies to {', '.join(named)}" if named else ""
    return f"{subject}{first.how}{effect}{alike}. After a review, run `{COMMAND}`"


def _between(name: Name, now: DefinitionDigests, locked: DefinitionDigests) -> Difference | None:
    if name not in locked:
        return Difference(name=name, change="added")
    if name not in now:
        return None if name[0] == CLAIMS else Difference(name=name, change="removed")
    first, second = now[name], locked[name]
    parts = sorted(part for part in first.keys() | second.keys() if first.get(part) != second.get(part))
    return Difference(name=name, change="changed", parts=tuple(parts)) if parts else None


_PARTS: Final[Mapping[str, tuple[str, ...]]] = {"markup": ("text", "blob"), "media_type": ("mimeType",)}
"""Maps the parts of a page's digest to the members of `contents` that each part covers."""


class LockedPages(msgspec.Struct, frozen=True, kw_only=True):
    """Checks the pages of one upstream against an enforced lock."""

    pins: DefinitionDigests
    required: frozenset[str]
    """URIs of the pages that tools refer to. These pages must be in the lock."""
    differing: dict[str, str] = msgspec.field(default_factory=dict)
    """Maps the URI of each page that differed at its last read to a description of the difference."""

    def check(self, uri: str, contents: Json) -> None:
        """Check the contents of a resource against the lock.

        Raises:
            ExecutionError: the page differs from the lock, or the lock does not contain the page.
        """
        locked = {name: pin for name, pin in self.pins.items() if name == (PAGES, uri)}
        if not locked and uri not in self.required:
            return
        for difference in differences({(PAGES, uri): page_digest(contents)}, locked):
            self.differing[uri] = difference.how
            raise ExecutionError(f"The page `{uri}` {difference.how}. After a review, run `{COMMAND}`.")
        self.differing.pop(uri, None)


def page_digest(contents: Json) -> DefinitionDigest:
    """Digest the markup, media type and `_meta.ui` of a page."""
    blocks = [each for each in contents if isinstance(each, dict)] if isinstance(contents, list) else []
    parts = {
        part: digest_of_json([[each.get(member) for member in members] for each in blocks])
        for part, members in _PARTS.items()
    }
    metas = [each.get("_meta") for each in blocks]
    return {**parts, "ui": digest_of_json([meta.get("ui") if isinstance(meta, dict) else None for meta in metas])}
