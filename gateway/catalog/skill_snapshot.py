"""Finds skills, and takes a snapshot of each skill's front matter and file digests. All functions block.

Only regular files inside the directory are read, and no hidden files. A file that changes during the read triggers
another reload, which reads the whole directory again.
"""

import hashlib
import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from gateway.catalog.file_dependencies import FileDependencies
from gateway.catalog.skill_file import read_skill_file
from gateway.config.diagnostics.problems import Problems
from gateway.config.loader import LoadedConfig
from gateway.config.machine_facts import is_directory
from gateway.config.models.document import SKILL_FILE, SkillDirectories
from gateway.config.reading.file_pattern import FilePattern
from gateway.config.reading.nodes import Diagnostic, Place
from gateway.config.reading.source_file import SourceFile, UnreadableError, decode
from gateway.control_characters import visible_path
from gateway.errors import Severity
from gateway.executors.files.globs import Globs, Listing, compile_globs
from gateway.executors.files.regular_files import FileFacts, NotServedError, TooLargeError, read_beneath
from gateway.json_types import JsonObject, empty

MAX_FILES: Final = 512
MAX_BYTES: Final = 16 * 2**20
"""`MAX_FILES` and `MAX_BYTES` per skill are the limits that every host must support (SEP-2640, "Limits")."""


class SkillFileFacts(msgspec.Struct, frozen=True, kw_only=True):
    path: str
    """Path relative to the skill's directory."""
    facts: FileFacts
    digest: str
    """SHA-256 in hexadecimal."""
    size: int
    """Size in bytes."""


class SkillSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    config: SkillDirectories
    index: int
    """Index of the skill's entry in `skills:`, from 0."""
    name: str
    """Name of the skill's directory. The name in the front matter must be the same."""
    globs: Globs
    frontmatter: JsonObject = msgspec.field(default_factory=empty)
    files: tuple[SkillFileFacts, ...] = ()
    """The skill's files, including SKILL.md, sorted by path."""
    directories: tuple[str, ...] = ()
    """Paths of all directories, relative to the skill's directory. The skill's directory itself is ""."""
    diagnostics: tuple[Diagnostic, ...] = ()

    @property
    def has_errors(self) -> bool:
        return any(each.severity is Severity.ERROR for each in self.diagnostics)


def read_skill(
    directory: str, config: SkillDirectories, *, index: int, holds_secret: Callable[[bytes], bool]
) -> SkillSnapshot:
    globs = compile_globs(directory, ["**"])
    listing = globs.listing(at_most=MAX_FILES)
    name = Path(globs.root).name
    path = Path(globs.root, SKILL_FILE)
    try:
        data = read_beneath(globs.real_root, SKILL_FILE, max_size=MAX_BYTES)
        source = SourceFile(path, decode(data))
    except (OSError, UnreadableError) as error:
        unreadable = Diagnostic(message=_reason(error), place=_place_of(error, path))
        return SkillSnapshot(config=config, index=index, name=name, globs=globs, diagnostics=(unreadable,))
    frontmatter, found = read_skill_file(source, directory=visible_path(name))
    report = partial(Diagnostic, place=Place(source, 1, 1))
    if data.startswith(b"\xef\xbb\xbf"):
        message = "starts with a byte order mark, which hides its first line from agents. Remove it"
        found.append(report(message=message))
    found += [report(message=message) for message in _errors_of(listing)]
    snapshot = SkillSnapshot(
        config=config, index=index, name=name, globs=globs, frontmatter=frontmatter, diagnostics=tuple(found)
    )
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
        if "\\" in each.path:
            message = f"`{shown}` is not served: its name contains a backslash, which is a separator on other systems"
            found.append(report(message=message, severity=Severity.WARNING))
            continue
        try:
            # A file can have grown since it was listed.
            data = read_beneath(snapshot.globs.real_root, each.path, max_size=left)
        except OSError as error:
            message = _TOO_LARGE if isinstance(error, TooLargeError) else f"`{shown}` {_reason(error)}"
            found.append(report(message=message))
            continue
        left -= len(data)
        if holds_secret(data):
            message = f"`{shown}` contains a secret that is set elsewhere. It is masked, so the digest does not match"
            found.append(report(message=message, severity=Severity.WARNING))
        digest = hashlib.sha256(data).hexdigest()
        files.append(SkillFileFacts(path=each.path, facts=each.facts, digest=digest, size=len(data)))
    return msgspec.structs.replace(
        snapshot,
        files=tuple(files),
        directories=listing.directories,
        diagnostics=tuple(found),
    )


_TOO_LARGE: Final = f"the skill's files exceed {MAX_BYTES // 2**20} MiB in total, so agents can reject the skill"


def _errors_of(listing: Listing) -> Iterator[str]:
    if listing.is_incomplete:
        yield f"the skill has more than {MAX_FILES} files, so agents can reject the skill"
    if sum(each.facts.size for each in listing.files) > MAX_BYTES:
        yield _TOO_LARGE
    for path in listing.refused:
        yield f"`{visible_path(path)}` is a link that leads outside the skill's directory, or to no file in it"
    for path in listing.unreadable:
        yield f"the directory `{visible_path(path) or '.'}` cannot be listed"


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


_DEEP: Final = "**"
_SCHEME: Final = "skill://"


def key_of(name: str) -> str:
    """Return the URI of a skill's directory, which is the key of the skill."""
    return f"{_SCHEME}{name}"


def find_skills(
    loaded: LoadedConfig, *, problems: Problems, dependencies: FileDependencies
) -> tuple[SkillSnapshot, ...]:
    """Read all skills, ordered by entry and name. Skills with errors are reported and left out."""
    found: dict[str, SkillSnapshot] = {}
    for index, config in enumerate(loaded.document.skills):
        place = problems.at("skills", index)
        for directory in _directories(config.dir, problems=place, dependencies=dependencies):
            snapshot = read_skill(directory, config, index=index, holds_secret=loaded.redactor.is_in)
            dependencies.add_root(directory, resolved=snapshot.globs.real_root, problems=place)
            for each in snapshot.diagnostics:
                located = msgspec.structs.replace(each, path=("skills", index))
                problems.add(loaded.sources.problem(located, loaded.redactor))
            if (first := found.get(snapshot.name)) is not None:
                other = first.globs.root
                message = f"`{directory}` and `{other}` both contain a skill named `{snapshot.name}`"
                place.error(message if other != directory else f"`skills.{first.index}` already includes `{directory}`")
            elif not snapshot.has_errors:
                found[snapshot.name] = snapshot
    return tuple(found.values())


def _directories(glob: str, *, problems: Problems, dependencies: FileDependencies) -> Iterator[str]:
    """Yield the directories that match a glob and contain a SKILL.md, and watch for new directories."""
    if "\0" in glob:
        problems.error("a path cannot contain NUL")
        return
    pattern = FilePattern.parse(glob, directory=problems.directory)
    root = _root(pattern)
    dependencies.files.add(root)
    if not is_directory(root):
        problems.error(f"directory `{root}` does not exist")
        return
    if pattern.path is None and ".." in pattern.pattern.split("/"):
        problems.error("`..` leads outside the directory that the glob starts with")
        return
    dependencies.globs.add(watched(pattern))
    for directory in _skills(pattern, root, problems=problems):
        if Path(os.path.realpath(directory)) != Path(os.path.realpath(root), directory.relative_to(root)):
            # Watch the target of a linked directory too, because changes are visible only there.
            dependencies.globs.add(compile_globs(str(directory), [_DEEP]))
        yield str(directory)


def watched(pattern: FilePattern) -> Globs:
    """Return globs for all files in the directories that match `pattern`, including directories created later."""
    below = _DEEP if pattern.path is not None else f"{pattern.pattern}/{_DEEP}"
    return compile_globs(str(_root(pattern)), [below])


def _root(pattern: FilePattern) -> Path:
    return pattern.directory if pattern.path is None else pattern.path


def _skills(pattern: FilePattern, root: Path, *, problems: Problems) -> list[Path]:
    try:
        matches = [root] if pattern.path is not None else pattern.found()
    except UnreadableError as error:
        problems.error(str(error))
        return []
    skills = list(dict.fromkeys(each for match in matches if (each := _skill_at(match)) is not None))
    if pattern.path is not None and not skills:
        problems.error(f"`{root}` contains no {SKILL_FILE}")
    elif not skills:
        problems.warning(f"no directory with a {SKILL_FILE} matches")
    elif _DEEP not in pattern.pattern:
        for each in matches:
            if is_directory(each) and each not in skills:
                problems.warning(f"`{each}` is not a skill: it has no {SKILL_FILE}")
    return skills


def _skill_at(match: Path) -> Path | None:
    directory = match.parent if match.name == SKILL_FILE and not is_directory(match) else match
    # Include dangling links, because reading the link reports the error.
    return directory if os.path.lexists(directory / SKILL_FILE) else None
