"""Finds the skills in the directories of `skills:`, and the files to watch. Blocking."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from gateway.catalog.file_dependencies import FileDependencies
from gateway.catalog.skills.snapshot import SkillSnapshot, read_skill
from gateway.config.diagnostics.problems import Problems
from gateway.config.loader import LoadedConfig
from gateway.config.machine_facts import is_directory, real_path
from gateway.config.models.document import SKILL_FILE, SkillDirectories
from gateway.config.reading.file_pattern import MOST_ENTRIES, FilePattern, TooManyEntriesError
from gateway.executors.files.globs import Globs, compile_globs

_DEEP: Final = "**"
_SCHEME: Final = "skill://"


class FoundSkill(msgspec.Struct, frozen=True, kw_only=True):
    snapshot: SkillSnapshot
    config: SkillDirectories
    index: int
    """Index of its entry in `skills:`, from 0."""

    @property
    def name(self) -> str:
        return self.snapshot.name


def key_of(name: str) -> str:
    """Return the key of a skill among resources: the URI of its directory."""
    return f"{_SCHEME}{name}"


def find_skills(loaded: LoadedConfig, *, problems: Problems, dependencies: FileDependencies) -> tuple[FoundSkill, ...]:
    """Read all skills, ordered by entry and name. Skills with errors are reported and left out."""
    found: dict[str, FoundSkill] = {}
    for index, config in enumerate(loaded.document.skills):
        place = problems.at("skills", index)
        for directory in _directories(config.dir, problems=place, dependencies=dependencies):
            snapshot = read_skill(directory, holds_secret=loaded.redactor.is_in)
            dependencies.add_root(directory, place=snapshot.globs.place, problems=place)
            for each in snapshot.diagnostics:
                located = msgspec.structs.replace(each, path=("skills", index))
                problems.add(loaded.sources.problem(located, loaded.redactor))
            if (first := found.get(snapshot.name)) is not None:
                other = first.snapshot.globs.root
                message = f"`{directory}` is another skill named `{snapshot.name}`; the first is `{other}`"
                place.error(message if other != directory else f"`skills.{first.index}` already includes `{directory}`")
            elif not snapshot.has_errors:
                found[snapshot.name] = FoundSkill(snapshot=snapshot, config=config, index=index)
    return tuple(found.values())


def _directories(glob: str, *, problems: Problems, dependencies: FileDependencies) -> Iterator[str]:
    """Yield the directories with a SKILL.md that match a glob, and watch for new ones."""
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
        if Path(real_path(directory)) != Path(real_path(root), directory.relative_to(root)):
            # The directory is reached through a link, and changes are visible only at the target.
            dependencies.globs.add(compile_globs(str(directory), [_DEEP]))
        yield str(directory)


def watched(pattern: FilePattern) -> Globs:
    """Return globs for everything in matching directories, including future ones."""
    below = _DEEP if pattern.path is not None else f"{pattern.pattern}/{_DEEP}"
    return compile_globs(str(_root(pattern)), [below])


def _root(pattern: FilePattern) -> Path:
    return pattern.directory if pattern.path is None else pattern.path


def _skills(pattern: FilePattern, root: Path, *, problems: Problems) -> list[Path]:
    """Return the directories with a SKILL.md, and report the others."""
    try:
        matches = [root] if pattern.path is not None else pattern.found()
    except TooManyEntriesError:
        message = f"searches more than {MOST_ENTRIES:,} files and directories; use a more specific directory"
        problems.error(message)
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
    """Return the directory of a skill, given that directory or its SKILL.md."""
    directory = match.parent if match.name == SKILL_FILE and not is_directory(match) else match
    # Dangling links count, because reading them reports the error.
    return directory if os.path.lexists(directory / SKILL_FILE) else None
