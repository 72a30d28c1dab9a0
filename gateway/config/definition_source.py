"""Merges definitions from MCP servers and OpenAPI documents into the configuration.

Merged definitions have the same access rules, limits, locks and lints as those of the files, which come first. An
invalid definition is left out with a warning. Sources never block. They return the last known definitions.
"""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final, Protocol

import msgspec
from msgspec.structs import replace

from gateway.config.diagnostics.problems import Problems
from gateway.config.loader import LoadedConfig, load
from gateway.config.models.definition_keys import Definition
from gateway.config.models.document import LISTS, Document
from gateway.config.reading.source_map import LeftOutOperation, Origin
from gateway.json_types import DocumentPath


class SourceDefinition(Origin, frozen=True, kw_only=True):
    """A definition, and where its problems are reported."""

    config: Definition


class SourceEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One server or document, and its current definitions."""

    definitions: Mapping[tuple[str, str], SourceDefinition]
    """("tools", name) → definition, in list order. Names include the prefix."""
    fingerprint: str
    """Changes with the definitions. Processes with equal fingerprints serve the same catalog."""
    files: Mapping[Path, str] = msgspec.field(default_factory=dict)
    """SHA-256 of each file that was read. A changed file triggers a reload."""
    reviewed: Mapping[tuple[str, str], SourceDefinition] = msgspec.field(default_factory=dict)
    """Locked versions of definitions, if they are still known."""
    left_out: tuple[LeftOutOperation, ...] = ()
    instructions: Mapping[str, str] = msgspec.field(default_factory=dict)
    """By server."""
    unavailable: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Servers without known lists that all callers can use, by prefix of their tools."""


class DefinitionSource(Protocol):
    def definitions(self, config: LoadedConfig, problems: Problems) -> Iterable[SourceEntry]:
        """Return the entries in the files with their last known definitions, in order. Runs in the loading thread.

        Report an unreachable entry at most as a warning, because errors in `problems` reject the configuration.
        """

    async def follow(self, document: Document, changed: Callable[[], None]) -> None:
        """Keep the definitions of this document's entries up to date. Runs on the event loop.

        The first call delays startup until it returns, which must happen within a bounded time. Each swap cancels the
        call and makes a new one. Call `changed` to request a reload. Unreachable entries are retried without raising.
        """


class DocumentStore(Protocol):
    """Stores the last documents of a source across restarts."""

    async def read(self, name: str) -> bytes | None: ...

    async def save(self, name: str, content: bytes) -> None:
        """Store or replace a document.

        Raises:
            ValueError: the document is too large.
        """


NO_OWNERS: Final[Mapping[DocumentPath, DocumentPath]] = MappingProxyType({})


def load_definitions(path: Path, sources: Iterable[DefinitionSource] = ()) -> LoadedConfig:
    """Read the YAML files and merge the definitions of all sources. Blocking.

    Raises:
        ConfigError: with every problem, if no file could be read as a configuration.
    """
    return merge(load(path), sources)


def merge(
    config: LoadedConfig,
    sources: Iterable[DefinitionSource],
    *,
    owners: Mapping[DocumentPath, DocumentPath] = NO_OWNERS,
) -> LoadedConfig:
    """Add the definitions of all sources.

    If several entries offer the same name or URI, the definition of the file wins, then that of its entry in `owners`,
    then that of the first entry. An upstream therefore cannot take over a name by announcing it. Each unused definition
    causes a warning.
    """
    problems = config.start_problems()
    entries = [entry for source in sources for entry in source.definitions(config, problems)]
    if not entries:
        return replace(config, problems=tuple(problems))
    sections: dict[str, dict[str, Definition]] = {name: dict(getattr(config.document, name)) for name in LISTS}
    origins: dict[DocumentPath, Origin] = {}
    held = {
        name
        for entry in entries
        for name, definition in entry.definitions.items()
        if definition.path[:2] == owners.get(name)
    }
    refused: list[tuple[DocumentPath, tuple[str, str]]] = []
    for entry in entries:
        for name, definition in entry.definitions.items():
            section, key = name
            is_held_elsewhere = name in held and definition.path[:2] != owners[name]
            # The file's definitions are added first, so they win.
            if key not in sections[section] and not is_held_elsewhere:
                sections[section][key] = definition.config
                origins[name] = definition
            else:
                refused.append((definition.path, name))
    for path, name in refused:
        first = origins[name].path if name in origins else name
        problems.at(*path).warning(not_offered(config, name, first=first))
    return replace(
        config,
        # All definitions have been validated.
        document=config.document.model_copy(update=sections),
        sources=config.sources.with_origins(origins),
        origins=origins,
        problems=tuple(problems),
        files={**config.files, **{path: digest for entry in entries for path, digest in entry.files.items()}},
        fingerprints=tuple(entry.fingerprint for entry in entries),
        left_out=tuple(each for entry in entries for each in entry.left_out),
        claims=frozenset((name, path[:2]) for path, name in refused if name in origins),
        reviewed={
            name: (each.config, each)
            for entry in entries
            for name, each in entry.reviewed.items()
            if name in origins and origins[name].path[:2] == each.path[:2]
        },
        instructions={name: text for entry in entries for name, text in entry.instructions.items()},
        unavailable={prefix: name for entry in entries for prefix, name in entry.unavailable.items()},
    )


def with_reviewed(config: LoadedConfig, names: Iterable[DocumentPath]) -> LoadedConfig:
    sections: dict[str, dict[str, Definition]] = {name: dict(getattr(config.document, name)) for name in LISTS}
    origins = dict(config.origins)
    for name in names:
        sections[str(name[0])][str(name[1])], origins[name] = config.reviewed[name]
    document = config.document.model_copy(update=sections)
    return replace(config, document=document, origins=origins, sources=config.sources.with_origins(origins))


def not_offered(config: LoadedConfig, name: tuple[str, str], *, first: DocumentPath) -> str:
    """Return the warning for a name or URI that `first` already has."""
    kind, key = name[0].removesuffix("s"), name[1]
    location, _ = config.sources.locate(first)
    taken = f"the {kind} `{key}` is not offered: `{'.'.join(map(str, first))}` ({location}) has that"
    return f"{taken} URI already; `uri_prefix` makes it another" if kind == "resource" else f"{taken} name already"
