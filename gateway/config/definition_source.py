"""Sources of definitions other than YAML files, such as MCP servers and OpenAPI documents, and merging them.

Source definitions become part of the document, so access, limits, locks, lints and lists treat all definitions alike.
Definitions in the file come first. An invalid source definition is left out with a warning. Sources never block: they
return their last known state.
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
    """One definition of a source entry, with the place in the file where its problems are reported."""

    config: Definition


class SourceEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of a source, such as one server or document, and its current definitions."""

    definitions: Mapping[tuple[str, str], SourceDefinition]
    """("tools", name) → definition, in list order. Names include the prefix, as clients see them."""
    fingerprint: str
    """Changes with the definitions. Part of the digest that tells whether processes serve the same catalog."""
    files: Mapping[Path, str] = msgspec.field(default_factory=dict)
    """SHA-256 of the files that were read. A change triggers a reload."""
    reviewed: Mapping[tuple[str, str], SourceDefinition] = msgspec.field(default_factory=dict)
    """The locked versions of definitions, if the source remembers them."""
    left_out: tuple[LeftOutOperation, ...] = ()
    """Operations that did not become definitions."""
    instructions: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Instructions for models, by server name."""


class DefinitionSource(Protocol):
    """A source of definitions other than the YAML files."""

    def definitions(self, config: LoadedConfig, problems: Problems) -> Iterable[SourceEntry]:
        """Return the entries named in the files, in order, with their last known definitions.

        Runs in the loading thread. An unreachable entry keeps its last definitions and is at most a warning. Errors in
        `problems` reject the configuration.
        """

    async def follow(self, document: Document, changed: Callable[[], None]) -> None:
        """Keep up to date with the entries of this document, and with no others. Runs on the event loop.

        The first call happens at startup and delays `definitions`: it must return once all entries have answered, or
        after a bounded time. It is called again after each swap, and cancelled by the next swap. The source calls
        `changed` to request a reload when `definitions` would return something new. Does not raise for unreachable
        entries; they are retried later.
        """


class DocumentStore(Protocol):
    """Keeps the last documents of a source across restarts, by name."""

    async def read(self, name: str) -> bytes | None:
        """Return a document, or None if there is none with this name."""

    async def save(self, name: str, content: bytes) -> None:
        """Store a document, replacing an older one with the same name.

        Raises:
            ValueError: the document is too large.
        """


NO_OWNERS: Final[Mapping[DocumentPath, DocumentPath]] = MappingProxyType({})


def load_definitions(path: Path, sources: Iterable[DefinitionSource] = ()) -> LoadedConfig:
    """Read the YAML files and merge the definitions of sources. Blocking.

    Raises:
        ConfigError: no file could be read as a configuration. It contains every problem.
    """
    return merge(load(path), sources)


def merge(
    config: LoadedConfig,
    sources: Iterable[DefinitionSource],
    *,
    owners: Mapping[DocumentPath, DocumentPath] = NO_OWNERS,
) -> LoadedConfig:
    """Add the definitions of all sources to those of the file.

    If several entries offer a name or URI, the file's own definition is served, then that of the entry in `owners`,
    then that of the first entry. So an upstream cannot take over a name from another upstream by announcing it. The
    others are reported as warnings.
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
            # The sections start with the file's definitions, so these win over all entries.
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
        # Not validated again, because all definitions are models already.
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
        owners={name: origin.path[:2] for name, origin in origins.items()},
        instructions={name: text for entry in entries for name, text in entry.instructions.items()},
    )


def with_reviewed(config: LoadedConfig, names: Iterable[DocumentPath]) -> LoadedConfig:
    """Return the configuration with the locked versions of these definitions."""
    sections: dict[str, dict[str, Definition]] = {name: dict(getattr(config.document, name)) for name in LISTS}
    origins = dict(config.origins)
    for name in names:
        sections[str(name[0])][str(name[1])], origins[name] = config.reviewed[name]
    document = config.document.model_copy(update=sections)
    return replace(config, document=document, origins=origins, sources=config.sources.with_origins(origins))


def not_offered(config: LoadedConfig, name: tuple[str, str], *, first: DocumentPath) -> str:
    """Return the warning for a definition whose name or URI is already taken by `first`."""
    kind, key = name[0].removesuffix("s"), name[1]
    location, _ = config.sources.locate(first)
    taken = f"the {kind} `{key}` is not offered: `{'.'.join(map(str, first))}` ({location}) has that"
    return f"{taken} URI already; `uri_prefix` makes it another" if kind == "resource" else f"{taken} name already"
