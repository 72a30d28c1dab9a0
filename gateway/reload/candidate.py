"""The result of a load that succeeded: what a reload may swap in, and what is served once it has."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from gateway.catalog.catalog import Catalog
from gateway.catalog.file_dependencies import RootPlace
from gateway.catalog.lockfile.lock import Lock
from gateway.config.loader import LoadedConfig
from gateway.config.models.document import LISTS, Document
from gateway.errors import Location, Problem
from gateway.json_types import DocumentPath
from gateway.reload.watch_plan import WatchPlan
from gateway.transports.listener.server_tls import ServerIdentity

Place = tuple[str, str]
"""A section and a name: `("tools", "deploy")`."""


class DefinitionPlaces(msgspec.Struct, frozen=True, kw_only=True):
    """The places of the definitions of one configuration."""

    lines: Mapping[Place, tuple[Path, int]] = msgspec.field(default_factory=dict)
    """The file and the line of each definition; of one that came from elsewhere, of the entry that it came by."""
    origins: Mapping[Place, Place] = msgspec.field(default_factory=dict)
    """The entry that it came by, of each definition that is not written in the files: `("upstreams", "github")`."""

    def source_of(self, place: Place) -> str | None:
        """Return `file:line` of a definition."""
        found = self.lines.get(place)
        return None if found is None else f"{found[0]}:{found[1]}"


NO_PLACES: Final = DefinitionPlaces()


def definition_places(loaded: LoadedConfig) -> DefinitionPlaces:
    places: dict[Place, DocumentPath] = {
        (section, name): (section, name) for section in LISTS for name in getattr(loaded.document, section)
    }
    places |= {("skills", str(index)): ("skills", index) for index in range(len(loaded.document.skills))}
    located = {place: loaded.sources.location(path) for place, path in places.items()}
    return DefinitionPlaces(
        lines={place: (where.file, where.line) for place, where in located.items() if where is not None},
        origins={
            (str(path[0]), str(path[1])): (str(origin.path[0]), str(origin.path[1]))
            for path, origin in loaded.origins.items()
        },
    )


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """A configuration that was loaded and compiled, ready to be served; once it is, the live one.

    It does not keep all that was loaded: the places of every word take more memory than the rest.
    """

    document: Document
    root: Path
    """The directory of the main file."""
    files: Mapping[Path, str]
    """Every file that was read, and every directory of plugins → SHA-256 (keyed for secrets)."""
    digest: str
    """One for all of them but the secrets: the same in every process that serves the same."""
    catalog: Catalog
    identity: ServerIdentity | None
    """The certificate that the listener shows, where `listen.tls` has it speak TLS."""
    watch: WatchPlan
    roots: Mapping[str, RootPlace]
    """The directories that bound what callers reach, and where each lay."""
    lock: Lock
    keeps_earlier: bool
    """Whether the lock keeps a definition of an earlier catalog in service."""
    owners: Mapping[DocumentPath, DocumentPath]
    """`LoadedConfig.owners`, by which the next load gives contested names to the same owners."""
    exposures: Mapping[str, Problem]
    """The keys that name addresses which it must not be served on, and why."""
    places: DefinitionPlaces = NO_PLACES
    """Where its definitions stand, for the console; none where there is no console."""
    audit_place: tuple[Location | None, str]
    """The place that names the audit log's file, and that line: whether it can be written shows when it is opened."""
    news: tuple[Problem, ...] = ()
    """Warnings that the live configuration does not have."""

    @property
    def lock_differences(self) -> Sequence[str]:
        """The differences between the files and the lock, a line each."""
        return [str(each) for each in self.catalog.lock_differences]
