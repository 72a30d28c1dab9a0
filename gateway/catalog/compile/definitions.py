"""Compiles tools, resources, prompts, skills and app pages, one definition at a time."""

import os
import shutil
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from posixpath import basename, dirname
from typing import Final, TypeVar
from urllib.parse import quote

import msgspec
from msgspec.structs import replace

from gateway.catalog.compile import wire_definitions
from gateway.catalog.compile.apps import compile_app
from gateway.catalog.compile.context import CompileContext, masked_primitive
from gateway.catalog.compile.prompts import compile_prompt
from gateway.catalog.compile.resources import compile_resource, resource_fields
from gateway.catalog.compile.tools import compile_tool
from gateway.catalog.digests import Name
from gateway.catalog.primitives import (
    Primitive,
    Resource,
    Skill,
    Tool,
    content_digest,
    definition_digest,
)
from gateway.catalog.skill_snapshot import MAX_BYTES, SkillSnapshot, key_of
from gateway.config.diagnostics.problems import Problems
from gateway.config.loader import LoadedConfig, Unavailable
from gateway.config.models import definitions as models
from gateway.config.models.base import entries_named_by
from gateway.config.models.definition_keys import Definition, Requires
from gateway.config.models.document import SKILL_FILE
from gateway.config.secrets.redactor import Redactor
from gateway.control_characters import visible_path
from gateway.executors.files.executor import FileReader, ServedFile, ServedFiles
from gateway.json_types import DocumentPath, JsonObject
from gateway.language.scope import Inputs
from gateway.plugin import ListKind

_PLATFORMS: Final = {"macos": "darwin", "windows": "win32"}
"""Maps platform names in the file to values of `sys.platform`."""


def _unmet(requires: Requires) -> Iterator[str]:
    for command in requires.commands:
        if shutil.which(command) is None:
            yield f"the command {command} is not on PATH"
    for name in requires.env:
        if not os.environ.get(name):
            yield f"the variable {name} is not set"
    platforms = [_PLATFORMS.get(platform.lower(), platform.lower()) for platform in requires.platforms]
    if platforms and sys.platform not in platforms:
        yield f"this platform is {sys.platform}, not {' or '.join(requires.platforms)}"


P = TypeVar("P", bound=Primitive)

_INVALID: Final = "it has errors. See the warnings"

_COMPILE_ONE: Final[Mapping[ListKind, Callable[..., Primitive | Sequence[Primitive] | None]]] = {
    "tools": compile_tool,
    "resources": compile_resource,
    "prompts": compile_prompt,
}


Placed = tuple[DocumentPath, P]
"""A primitive, and the path of the entry that defines it: `("tools", name)`, `("skills", index)`, or for app pages
`("tools", name, "app")`.
"""


class CompiledDefinitions(msgspec.Struct, frozen=True, kw_only=True):
    placed: tuple[Placed[Primitive], ...]
    left_out: tuple[Unavailable, ...]

    @property
    def primitives(self) -> tuple[Primitive, ...]:
        return tuple(primitive for _, primitive in self.placed)

    def without_invalid(self, loaded: LoadedConfig, problems: Problems) -> "CompiledDefinitions":
        """Return a copy without invalid definitions of sources such as upstreams, so that valid ones can be served."""
        found = {(str(kind), str(name)) for kind, name in loaded.origins}
        invalid = {name for name in found if not problems.at(*name).has_no_errors}
        return CompiledDefinitions(
            placed=tuple((path, each) for path, each in self.placed if path[:2] not in invalid),
            left_out=(
                *self.left_out,
                *(Unavailable(kind=kind, name=name, reason=_INVALID) for kind, name in sorted(invalid)),
            ),
        )


def compile_definitions(
    loaded: LoadedConfig,
    *,
    context: CompileContext,
    problems: Problems,
    excluded: Mapping[Name, str],
    skills: Iterable[SkillSnapshot],
) -> CompiledDefinitions:
    """Compile all definitions and skills that are not in `excluded`, which maps names to reasons."""
    placed: list[Placed[Primitive]] = []

    def place(path: DocumentPath, primitives: Iterable[Primitive]) -> None:
        placed.extend(
            (path, _finished(each, redactor=context.redactor, problems=problems.at(*path))) for each in primitives
        )

    left_out = [*loaded.left_out]
    left_out += (Unavailable(kind=kind, name=name, reason=reason) for (kind, name), reason in excluded.items())
    for section, compile_one in _COMPILE_ONE.items():
        definitions: Mapping[str, Definition] = getattr(loaded.document, section)
        for name, config in definitions.items():
            if (section, name) in excluded or _names_broken_entry(config, loaded):
                continue
            if missing := "; ".join(_unmet(config.requires)):
                left_out.append(Unavailable(kind=section, name=name, reason=missing))
                continue
            made = compile_one(name, config, problems=problems.at(section, name), context=context)
            place((section, name), [made] if isinstance(made, Primitive) else made or ())
    is_pinned = loaded.document.server.lock == "enforce"
    for found in skills:
        if ("skills", found.name) not in excluded:
            place(("skills", found.index), _compile_skill(found, is_pinned=is_pinned, context=context))
    for name in [each.name for _, each in placed if isinstance(each, Tool)]:
        path = ("tools", name, "app")
        place(path, compile_app(name, loaded.document.tools[name], problems=problems.at(*path), context=context))
    return CompiledDefinitions(placed=tuple(placed), left_out=tuple(left_out))


def _finished(primitive: Primitive, *, problems: Problems, redactor: Redactor) -> Primitive:
    masked = masked_primitive(primitive, redactor=redactor, problems=problems)
    return masked if masked.digest else replace(masked, digest=definition_digest(masked.definition))


def _names_broken_entry(config: Definition, loaded: LoadedConfig) -> bool:
    """Whether a definition refers to a connection or database whose error has been reported."""
    return any(
        name not in getattr(loaded.document, section) and loaded.is_hidden(section, name)
        for section, name in entries_named_by(config)
    )


def _compile_skill(found: SkillSnapshot, *, is_pinned: bool, context: CompileContext) -> Sequence[Resource]:
    """Return a resource for each file of a skill (SEP-2640). The first resource is SKILL.md, with `skill` set.

    With `is_pinned`, a file that has changed since the load cannot be read.
    """
    key = key_of(found.name)
    # A skill is compiled like a `files` resource.
    given = {"files": ["**"], "root": ".", "tags": found.config.tags, "access": found.config.access}
    config = models.Resource.model_validate(given)
    reader = FileReader(threads=context.services.worker_threads, max_size=MAX_BYTES)
    served = ServedFiles(globs=found.globs, prefix=f"{key}/", reader=reader)
    frontmatter = context.redactor.json(found.frontmatter)
    files = sorted(found.files, key=lambda file: (file.path != SKILL_FILE, file.path))
    definitions = {
        file.path: wire_definitions.skill_file_definition(
            uri=served.uri_of(file.path), path=file.path, facts=file.facts, frontmatter=frontmatter
        )
        for file in files
    }
    skill = Skill(
        entry={
            "uri": served.uri_of(SKILL_FILE),
            "frontmatter": frontmatter,
            "resources": [
                {"uri": served.uri_of(file.path), "digest": f"sha256:{file.digest}", "size": file.size}
                for file in files
            ],
        },
        directories=_directories(found, definitions),
        index=found.index,
    )
    common = resource_fields(key, config, scope=context.scope(Inputs(), Problems()), context=context)
    return [
        Resource(
            uri=served.uri_of(file.path),
            executor=ServedFile(files=served, path=file.path, digest=file.digest if is_pinned else None),
            version=file.digest,
            definition=definitions[file.path],
            # SEP-2640 has no notification for changed skills, so the digest includes the content.
            digest=content_digest(definitions[file.path], file.digest),
            skill=skill if file.path == SKILL_FILE else None,
            **common,
        )
        for file in files
    ]


def _directories(snapshot: SkillSnapshot, files: dict[str, JsonObject]) -> dict[str, tuple[JsonObject, ...]]:
    """Map the URI of each directory to the definitions of its files and subdirectories."""
    children: defaultdict[str, list[JsonObject]] = defaultdict(list)
    for path, definition in files.items():
        children[dirname(path)].append(definition)
    for path in snapshot.directories:
        if path:
            shown = visible_path(basename(path))
            definition = {"uri": _directory_uri(snapshot.name, path), "name": shown, "mimeType": "inode/directory"}
            children[dirname(path)].append(definition)
    return {_directory_uri(snapshot.name, path): tuple(children[path]) for path in snapshot.directories}


def _directory_uri(name: str, path: str) -> str:
    return f"{key_of(name)}/{quote(os.fsencode(path), safe='/')}" if path else key_of(name)
