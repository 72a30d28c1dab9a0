"""Defines the result of a successful load."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from gateway.catalog.catalog import Catalog
from gateway.catalog.file_dependencies import ResolvedRoot
from gateway.catalog.lock import Lock
from gateway.config.loader import LoadedConfig
from gateway.config.models.document import LISTS, Document
from gateway.errors import Location, Problem
from gateway.json_types import DocumentPath
from gateway.reload.watch_plan import WatchPlan
from gateway.transports.listener.server_tls import ServerIdentity

Place = tuple[str, str]
"""A section and a name, such as `("tools", "deploy")`."""


class DefinitionPlaces(msgspec.Struct, frozen=True, kw_only=True):
    """The locations of a configuration's definitions in its files."""

    lines: Mapping[Place, tuple[Path, int]] = msgspec.field(default_factory=dict)
    """The file and line of each definition, or of the entry that generated it."""
    origins: Mapping[Place, Place] = msgspec.field(default_factory=dict)
    """The entries that generated definitions, such as `("upstreams", "github")`."""

    def source_of(self, place: Place) -> str | None:
        """Return `file:line` of a definition, or None if the location is unknown."""
        found = self.lines.get(place)
        return None if found is None else f"{found[0]}:{found[1]}"


NO_PLACES: Final = DefinitionPlaces()


def definition_places(loaded: LoadedConfig) -> DefinitionPlaces:
    places: dict[Place, DocumentPath] = {
        (section, name): (section, name) for section in LISTS for name in getattr(loaded.document, section)
    }
    places |= {("skills", str(index)): ("skills", index) for index in range(len(loaded.document.skills))}
    located = {place: loaded.sources.locate(path)[0] for place, path in places.items()}
    return DefinitionPlaces(
        lines={place: (where.file, where.line) for place, where in located.items() if where is not None},
        origins={
            (str(path[0]), str(path[1])): (str(origin.path[0]), str(origin.path[1]))
            for path, origin in loaded.origins.items()
        },
    )


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """A loaded and compiled configuration that can be served.

    Locations are kept only for definitions. The locations of all values would need more memory than all other fields.
    """

    document: Document
    root: Path
    files: Mapping[Path, str]
    """SHA-256 of every file and plugin directory. Digests of secret files are keyed."""
    digest: str
    """Digest of all files except secret files. Replicas with the same files have the same digest."""
    catalog: Catalog
    identity: ServerIdentity | None
    watch: WatchPlan
    roots: Mapping[str, ResolvedRoot]
    """Directories that serve files or limit arguments, with their resolved paths and symbolic links."""
    lock: Lock
    owners: Mapping[DocumentPath, DocumentPath]
    """Entries that serve names offered by several entries, by name. The next load keeps these entries."""
    exposures: Mapping[str, Problem]
    """Errors for addresses in `listen` that require authentication, by key."""
    places: DefinitionPlaces = NO_PLACES
    """Locations of definitions for the console. Empty without a console."""
    audit_place: tuple[Location | None, str]
    """The location of the audit log's key, for errors when the file is opened."""
    news: tuple[Problem, ...] = ()

    @property
    def lock_differences(self) -> Sequence[str]:
        """Descriptions of the differences between the files and the lock."""
        return [str(each) for each in self.catalog.lock_differences]
