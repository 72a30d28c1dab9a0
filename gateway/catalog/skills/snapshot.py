"""Reads a snapshot of a skill: the digests of its files, and its front matter. Blocking.

Only regular files inside the directory are read, and no hidden files. If a file changes
during the read, the directory is read again, so a snapshot never mixes two versions.
"""

import hashlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from gateway.catalog.skills.skill_file import read_skill_file
from gateway.config.models.document import SKILL_FILE
from gateway.config.reading.nodes import Diagnostic, Place
from gateway.config.reading.source_file import SourceFile, UnreadableError, decode
from gateway.control_characters import visible_path
from gateway.errors import Severity
from gateway.executors.files.globs import Found, Globs, Listing, compile_globs
from gateway.executors.files.regular_files import FileFacts, NotServedError, TooLargeError, read_beneath
from gateway.json_types import JsonObject, empty

MAX_FILES: Final = 512
MAX_BYTES: Final = 16 * 2**20
"""Limits that every host must support (SEP-2640, "Limits")."""


class SkillFileFacts(msgspec.Struct, frozen=True, kw_only=True):
    path: str
    """Path relative to the skill's directory."""
    facts: FileFacts
    digest: str
    """SHA-256 in hexadecimal."""
    size: int
    """Bytes."""


class SkillSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    """Name of the directory. A valid skill has the same name."""
    globs: Globs
    frontmatter: JsonObject = msgspec.field(default_factory=empty)
    files: tuple[SkillFileFacts, ...] = ()
    """Sorted by path, including SKILL.md."""
    directories: tuple[str, ...] = ()
    """Paths relative to the skill's directory, which is ""."""
    diagnostics: tuple[Diagnostic, ...] = ()

    @property
    def has_errors(self) -> bool:
        return any(each.severity is Severity.ERROR for each in self.diagnostics)


def read_skill(directory: str, *, holds_secret: Callable[[bytes], bool]) -> SkillSnapshot:
    globs = compile_globs(directory, ["**"])
    listing = globs.listing(at_most=MAX_FILES)
    name = Path(globs.root).name
    path = Path(globs.root, SKILL_FILE)
    try:
        data = read_beneath(globs.place, SKILL_FILE, max_size=MAX_BYTES)
        source = SourceFile(path, decode(data))
    except (OSError, UnreadableError) as error:
        unreadable = Diagnostic(message=_reason(error), place=_place_of(error, path))
        return SkillSnapshot(name=name, globs=globs, diagnostics=(unreadable,))
    frontmatter, found = read_skill_file(source, directory=visible_path(name))
    report = partial(_diagnostic, Place(source, 1, 1))
    if data.startswith(b"\xef\xbb\xbf"):
        found.append(report("starts with a byte order mark, which hides its first line from agents; remove it"))
    found += map(report, _errors_of(listing))
    snapshot = SkillSnapshot(name=name, globs=globs, frontmatter=frontmatter, diagnostics=tuple(found))
    return snapshot if snapshot.has_errors else _with_files(snapshot, listing, report, holds_secret)


def _with_files(
    snapshot: SkillSnapshot,
    listing: Listing,
    report: Callable[..., Diagnostic],
    holds_secret: Callable[[bytes], bool],
) -> SkillSnapshot:
    found, files, left = [*snapshot.diagnostics], [], MAX_BYTES
    for each in listing.files:
        shown = visible_path(each.path)
        if not _is_readable(each):
            message = f"`{shown}` is not served: its name contains a backslash, which is a separator on other systems"
            found.append(report(message, Severity.WARNING))
            continue
        try:
            # A file can have grown since it was listed.
            data = read_beneath(snapshot.globs.place, each.path, max_size=left)
        except OSError as error:
            found.append(report(_TOO_LARGE if isinstance(error, TooLargeError) else f"`{shown}` {_reason(error)}"))
            continue
        left -= len(data)
        if holds_secret(data):
            message = (
                f"`{shown}` contains a secret from elsewhere in the configuration: it is masked, so its digest is wrong"
            )
            found.append(report(message, Severity.WARNING))
        digest = hashlib.sha256(data).hexdigest()
        files.append(SkillFileFacts(path=each.path, facts=each.facts, digest=digest, size=len(data)))
    return msgspec.structs.replace(
        snapshot,
        files=tuple(files),
        directories=listing.directories,
        diagnostics=tuple(found),
    )


_TOO_LARGE: Final = f"the skill's files have more than {MAX_BYTES // 2**20} MiB together, which agents can reject"


def _errors_of(listing: Listing) -> Iterator[str]:
    if listing.is_cut:
        yield f"the skill has more than {MAX_FILES} files, which agents can reject"
    if sum(each.facts.size for each in listing.files) > MAX_BYTES:
        yield _TOO_LARGE
    for path in listing.refused:
        yield f"`{visible_path(path)}` is a link that leads outside the skill's directory, or to no file in it"
    for path in listing.unreadable:
        yield f"the directory `{visible_path(path) or '.'}` cannot be listed"


def _is_readable(file: Found) -> bool:
    return "\\" not in file.path


def _diagnostic(place: Place, message: str, severity: Severity = Severity.ERROR) -> Diagnostic:
    return Diagnostic(message=message, place=place, severity=severity)


def _place_of(error: OSError | UnreadableError, path: Path) -> Place:
    line, column = (error.line, error.column) if isinstance(error, UnreadableError) else (1, 1)
    return Place(SourceFile(path, ""), line, column)


def _reason(error: OSError | UnreadableError) -> str:
    match error:
        case UnreadableError():
            return str(error)
        case NotServedError():
            return "is not a regular file in the skill's directory"
        case TooLargeError():
            return f"is larger than {MAX_BYTES // 2**20} MiB"
        case _:
            return f"cannot be read: {(error.strerror or 'unknown error').lower()}"
