"""Compiles each definition separately."""

import os
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Final, TypeVar

import msgspec
from msgspec.structs import replace

from gateway.catalog.catalog import Unavailable
from gateway.catalog.compile.apps import compile_app
from gateway.catalog.compile.context import CompileContext
from gateway.catalog.compile.mask_definitions import mask_definitions
from gateway.catalog.compile.prompts import compile_prompt
from gateway.catalog.compile.resources import compile_resource
from gateway.catalog.compile.skills import compile_skill
from gateway.catalog.compile.tools import compile_tool
from gateway.catalog.lockfile.digests import Name
from gateway.catalog.primitives import Primitive, Prompt, Resource, ResourceTemplate, Tool, definition_digest
from gateway.catalog.skills.discovery import FoundSkill
from gateway.config.diagnostics.problems import Problems
from gateway.config.loader import LoadedConfig
from gateway.config.models.definition_keys import Definition, Requires
from gateway.config.models.entry_references import entries_named_by
from gateway.plugin import ListKind

_PLATFORMS: Final = {"macos": "darwin", "windows": "win32"}
"""Names in the file → `sys.platform`."""


def unmet(requires: Requires) -> str | None:
    """Return why the requirements are not met, or None."""
    return "; ".join(_reasons(requires)) or None


def _reasons(requires: Requires) -> Iterator[str]:
    for command in requires.commands:
        if shutil.which(command) is None:
            yield f"the command {command} is not on PATH"
    for name in requires.env:
        if not os.environ.get(name):
            yield f"the variable {name} is not set"
    if requires.platforms and not any(_is_here(platform) for platform in requires.platforms):
        yield f"this platform is {sys.platform}, not {' or '.join(requires.platforms)}"


def _is_here(platform: str) -> bool:
    return sys.platform == _PLATFORMS.get(platform.lower(), platform.lower())


P = TypeVar("P", bound=Primitive)

_UNSOUND: Final = "it has errors; see the warnings"

_COMPILE_ONE: Final[Mapping[ListKind, Callable[..., Primitive | Sequence[Primitive] | None]]] = {
    "tools": compile_tool,
    "resources": compile_resource,
    "prompts": compile_prompt,
}


class CompiledDefinitions(msgspec.Struct, frozen=True, kw_only=True):
    tools: Mapping[str, Tool]
    resources: tuple[Resource, ...]
    skills: tuple[tuple[int, Resource], ...]
    """Index of the entry in `skills`, and a file of the skill."""
    apps: tuple[tuple[str, Resource], ...]
    """Name of the tool, and its page."""
    templates: tuple[ResourceTemplate, ...]
    prompts: Mapping[str, Prompt]
    has_all_resources: bool
    """Whether no definition in `resources:` was left out."""

    @property
    def uris(self) -> tuple[str, ...]:
        return (
            *(template.uri_template for template in self.templates),
            *(resource.uri for resource in self._all_resources()),
        )

    def primitives(self) -> Iterator[Primitive]:
        return chain[Primitive](self.tools.values(), self._all_resources(), self.templates, self.prompts.values())

    def without(self, names: set[Name]) -> "CompiledDefinitions":
        if not names:
            return self
        return replace(
            self,
            # Only definitions of sources are left out, and skills never come from sources.
            tools={name: each for name, each in self.tools.items() if ("tools", name) not in names},
            resources=tuple(each for each in self.resources if ("resources", each.name) not in names),
            apps=tuple(each for each in self.apps if ("tools", each[0]) not in names),
            templates=tuple(each for each in self.templates if ("resources", each.name) not in names),
            prompts={name: each for name, each in self.prompts.items() if ("prompts", name) not in names},
        )

    def _all_resources(self) -> Iterator[Resource]:
        yield from self.resources
        yield from (resource for _, resource in (*self.skills, *self.apps))


class DefinitionCompiler:
    def __init__(self, context: CompileContext, loaded: LoadedConfig, *, problems: Problems) -> None:
        self._context = context
        self._loaded = loaded
        self._problems = problems
        self.left_out: list[Unavailable] = [
            Unavailable(kind=each.section, name=each.name, reason=each.reason) for each in loaded.left_out
        ]

    def compile(self, *, excluded: Mapping[Name, str], skills: Iterable[FoundSkill]) -> CompiledDefinitions:
        """Compile all definitions except `excluded`, which maps names to reasons."""
        self.left_out += [
            Unavailable(kind=kind, name=name, reason=reason, is_locked_out=True)
            for (kind, name), reason in excluded.items()
        ]
        compiled = [
            primitive
            for kind in _COMPILE_ONE
            for name, config in self._served(kind, excluded)
            for primitive in self._compiled(kind, name, config)
        ]
        tools = {each.name: each for each in compiled if isinstance(each, Tool)}
        resources = {each.name for each in compiled if each.kind == "resources"}
        return CompiledDefinitions(
            tools=tools,
            resources=tuple(each for each in compiled if isinstance(each, Resource)),
            skills=tuple(self._skills(each for each in skills if ("skills", each.name) not in excluded)),
            apps=tuple((name, app) for name in tools for app in self._app(name)),
            templates=tuple(each for each in compiled if isinstance(each, ResourceTemplate)),
            prompts={each.name: each for each in compiled if isinstance(each, Prompt)},
            has_all_resources=resources == self._loaded.document.resources.keys(),
        )

    def unsound(self) -> set[Name]:
        """Return the definitions of sources with errors. They are left out."""
        found = {(str(kind), str(name)) for kind, name in self._loaded.origins}
        found = {name for name in found if not self._problems.at(*name).has_no_errors}
        self.left_out += [Unavailable(kind=kind, name=name, reason=_UNSOUND) for kind, name in sorted(found)]
        return found

    def _served(self, kind: ListKind, excluded: Mapping[Name, str]) -> Iterator[tuple[str, Definition]]:
        definitions: Mapping[str, Definition] = getattr(self._loaded.document, kind)
        for name, config in definitions.items():
            if (kind, name) in excluded or _names_broken_entry(config, self._loaded):
                continue
            reason = unmet(config.requires)
            if reason is None:
                yield name, config
            else:
                self.left_out.append(Unavailable(kind=kind, name=name, reason=reason))

    def _compiled(self, kind: ListKind, name: str, config: Definition) -> Sequence[Primitive]:
        place = self._problems.at(kind, name)
        compiled = _COMPILE_ONE[kind](name, config, problems=place, context=self._context)
        return self._finished([compiled] if isinstance(compiled, Primitive) else compiled or (), place)

    def _app(self, tool: str) -> Sequence[Resource]:
        config, place = self._loaded.document.tools[tool], self._problems.at("tools", tool, "app")
        if (app := config.app) is None:
            return ()
        return self._finished(compile_app(tool, config, app, problems=place, context=self._context), place)

    def _skills(self, skills: Iterable[FoundSkill]) -> Iterator[tuple[int, Resource]]:
        is_pinned = self._loaded.document.server.lock == "enforce"
        for found in skills:
            files = compile_skill(found, is_pinned=is_pinned, context=self._context)
            for resource in self._finished(files, self._problems.at("skills", found.index)):
                yield found.index, resource

    def _finished(self, primitives: Sequence[P], problems: Problems) -> Sequence[P]:
        """Mask secrets and compute digests."""
        masked = mask_definitions(primitives, redactor=self._context.redactor, problems=problems)
        return tuple(
            each if each.digest else replace(each, digest=definition_digest(each.definition)) for each in masked
        )


def _names_broken_entry(config: Definition, loaded: LoadedConfig) -> bool:
    """Whether a definition refers to a connection or database whose error has been reported."""
    return any(
        name not in getattr(loaded.document, section) and loaded.is_hidden(section, name)
        for section, name in entries_named_by(config)
    )
