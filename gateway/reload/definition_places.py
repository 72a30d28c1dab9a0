"""The places of definitions in the files: a line each, which a catalog can keep, and not those of every word."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from gateway.config.loader import LoadedConfig
from gateway.config.models.document import LISTS
from gateway.json_types import DocumentPath

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
