"""Sources of definitions beside the YAML files, such as other MCP servers and OpenAPI documents, and their merge.

The file names a source's entries (`upstreams.github`); the source says which definitions each entry offers. They join
the document, so that access, limits, locks, lints and lists hold for all definitions alike. The file's own come first,
then those of each entry in order. What is wrong with one of an entry's definitions leaves that one out, as a warning:
`Problems` takes care of that. Nothing here waits: a source answers with what it knew last.
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
    """One definition of an entry: the model of its section, and the place in the file that stands for it."""

    config: Definition


class SourceEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of a source, such as one server or document, with what it offers now."""

    definitions: Mapping[tuple[str, str], SourceDefinition]
    """("tools", name) → definition, in the order of lists; names are as clients see them, with their prefix."""
    fingerprint: str
    """Changes with the definitions; part of the digest by which processes tell whether they serve the same."""
    files: Mapping[Path, str] = msgspec.field(default_factory=dict)
    """Files that were read → SHA-256; a change of one is a reason to reload."""
    reviewed: Mapping[tuple[str, str], SourceDefinition] = msgspec.field(default_factory=dict)
    """The definitions as they were locked, as far as that is remembered."""
    left_out: tuple[LeftOutOperation, ...] = ()
    """What is no definition, and why."""
    instructions: Mapping[str, str] = msgspec.field(default_factory=dict)
    """By the name of a server: what it tells models before they use it."""


class DefinitionSource(Protocol):
    """A source beside the YAML files."""

    def definitions(self, config: LoadedConfig, problems: Problems) -> Iterable[SourceEntry]:
        """The entries that the files name, in their order, with what is known of each; in the thread that loads.

        An entry that cannot be reached gives what it offered last, or nothing. It is no error; at most a warning. An
        error in `problems` means that the operator wrote something wrong, and refuses the files.
        """

    async def follow(self, document: Document, changed: Callable[[], None]) -> None:
        """Keep in touch with the entries of this document from now on, and with no others; on the event loop.

        Called at the start, before the first `definitions`, which waits for it: it returns when all entries have
        answered, or after a bounded time. Called again after each swap, where nothing waits for it. Whenever
        `definitions` would say something new, the source calls `changed`: a reload follows. Cancelled if a swap comes
        before it returned. Raises nothing: who cannot be reached is asked again later.
        """


class DocumentStore(Protocol):
    """Keeps the documents that a source has had last, by name, over a restart."""

    async def read(self, name: str) -> bytes | None:
        """A document; None for one that is not there."""

    async def save(self, name: str, content: bytes) -> None:
        """Keep a document in place of an older one of that name.

        Raises:
            ValueError: it is too large.
        """


NO_OWNERS: Final[Mapping[DocumentPath, DocumentPath]] = MappingProxyType({})


def load_definitions(path: Path, sources: Iterable[DefinitionSource] = ()) -> LoadedConfig:
    """Read the YAML files and merge the definitions of sources. Blocking.

    Raises:
        ConfigError: no file could be read as a configuration at all; it has every problem.
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
            # The sections begin with the file's own definitions, which so win over all entries.
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
        # Copied without validation: the definitions are models already.
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
    """The same with these definitions as they were locked."""
    sections: dict[str, dict[str, Definition]] = {name: dict(getattr(config.document, name)) for name in LISTS}
    origins = dict(config.origins)
    for name in names:
        sections[str(name[0])][str(name[1])], origins[name] = config.reviewed[name]
    document = config.document.model_copy(update=sections)
    return replace(config, document=document, origins=origins, sources=config.sources.with_origins(origins))


def not_offered(config: LoadedConfig, name: tuple[str, str], *, first: DocumentPath) -> str:
    """The warning for a definition whose name, or URI, `first` has already."""
    kind, key = name[0].removesuffix("s"), name[1]
    location, _ = config.sources.locate(first)
    taken = f"the {kind} `{key}` is not offered: `{'.'.join(map(str, first))}` ({location}) has that"
    return f"{taken} URI already; `uri_prefix` makes it another" if kind == "resource" else f"{taken} name already"
