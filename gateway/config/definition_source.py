"""Merges definitions from MCP servers and OpenAPI documents into the configuration.

Access rules, limits, the lock file and lints apply to these definitions as they do to definitions in the files.
Invalid definitions are left out with a warning.
"""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final, Protocol

import msgspec
from msgspec.structs import replace

from gateway.config.diagnostics.problems import Problems
from gateway.config.loader import LoadedConfig, Unavailable, load
from gateway.config.models.definition_keys import Definition
from gateway.config.models.document import LISTS, Document
from gateway.config.reading.source_map import SourceDefinition
from gateway.json_types import DocumentPath


class SourceEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One MCP server or OpenAPI document, and its current definitions."""

    definitions: Mapping[tuple[str, str], SourceDefinition]
    """Maps `("tools", name)` to the definition, in list order. The names include the prefix of the entry."""
    fingerprint: str
    """A digest of the definitions. Processes with equal fingerprints serve the same catalog."""
    files: Mapping[Path, str] = msgspec.field(default_factory=dict)
    """SHA-256 of each file that the source has read. A change to one of these files triggers a reload."""
    reviewed: Mapping[tuple[str, str], SourceDefinition] = msgspec.field(default_factory=dict)
    """For each definition that differs from the lock file: the locked version, if the source still has that version."""
    left_out: tuple[Unavailable, ...] = ()
    instructions: Mapping[str, str] = msgspec.field(default_factory=dict)
    """The instructions of each MCP server, by the name of the server."""
    unavailable: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Maps tool prefixes to the names of MCP servers without access rules whose tools are not known yet."""


class DefinitionSource(Protocol):
    def definitions(self, config: LoadedConfig, problems: Problems) -> Iterable[SourceEntry]:
        """Return the entries in file order, with the definitions that were last received.

        This method runs in the thread that loads the configuration, and must not wait for servers. Report unreachable
        servers as warnings, because any error in `problems` rejects the configuration.
        """

    async def follow(self, document: Document, changed: Callable[[], None]) -> None:
        """Receive the definitions of the entries in `document`, and call `changed` when they differ.

        This method runs on the event loop. Startup waits for the first call, which must therefore end in bounded time.
        Each reload cancels a running call and calls the method again. `changed` requests a reload.
        """


class DocumentStore(Protocol):
    """Stores the documents that a source last received, so that they are available after a restart."""

    async def read(self, name: str) -> bytes | None: ...

    async def save(self, name: str, content: bytes) -> None:
        """Store or replace a document.

        Raises:
            ValueError: the document is too large.
        """


NO_OWNERS: Final[Mapping[DocumentPath, DocumentPath]] = MappingProxyType({})


def load_definitions(path: Path, sources: Iterable[DefinitionSource] = ()) -> LoadedConfig:
    """Read the YAML files and add the definitions of all sources. This function blocks.

    Raises:
        ConfigError: none of the files could be read. The error contains all problems.
    """
    return merge(load(path), sources)


def merge(
    config: LoadedConfig,
    sources: Iterable[DefinitionSource],
    *,
    owners: Mapping[DocumentPath, DocumentPath] = NO_OWNERS,
) -> LoadedConfig:
    """Return the configuration with the definitions of all sources added.

    If several definitions have the same name or URI, only one of them is used, in this order of precedence: the
    definition in the file, the definition of the entry that `owners` maps the name to, and the first definition. An
    upstream therefore cannot take over a name that another entry already serves. Unused definitions cause warnings.
    """
    problems = config.start_problems()
    entries = [entry for source in sources for entry in source.definitions(config, problems)]
    if not entries:
        return replace(config, problems=tuple(problems))
    sections: dict[str, dict[str, Definition]] = {name: dict(getattr(config.document, name)) for name in LISTS}
    origins: dict[DocumentPath, SourceDefinition] = {}
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
        # `model_copy` does not validate, but all definitions have already been validated.
        document=config.document.model_copy(update=sections),
        sources=config.sources.with_origins(origins),
        origins=origins,
        problems=tuple(problems),
        files={**config.files, **{path: digest for entry in entries for path, digest in entry.files.items()}},
        fingerprints=tuple(entry.fingerprint for entry in entries),
        left_out=tuple(each for entry in entries for each in entry.left_out),
        claims=frozenset((name, path[:2]) for path, name in refused if name in origins),
        reviewed={
            name: each
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
        origins[name] = config.reviewed[name]
        sections[str(name[0])][str(name[1])] = origins[name].config
    document = config.document.model_copy(update=sections)
    return replace(config, document=document, origins=origins, sources=config.sources.with_origins(origins))


def not_offered(config: LoadedConfig, name: DocumentPath, *, first: DocumentPath) -> str:
    """Return the warning for a definition whose name or URI is already used at `first`."""
    kind, key = str(name[0]).removesuffix("s"), name[1]
    location, _ = config.sources.locate(first)
    taken = f"the {kind} `{key}` is not offered: `{'.'.join(map(str, first))}` ({location}) already has that"
    return f"{taken} URI. Set `uri_prefix` to change the URI" if kind == "resource" else f"{taken} name"
