"""The files as they are on disk now, masked, and the place of each definition in them.

Why read again: a catalog that is served does not keep the places of its words, which take more memory than the rest.
The files are read once for each state in which the console shows them.
"""

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import msgspec

from gateway.config.loader import LoadedConfig
from gateway.errors import ConfigError
from gateway.reload.definition_places import NO_PLACES, DefinitionPlaces, Place, definition_places
from gateway.reload.pipeline import ReloadPipeline


class ConfigFiles(msgspec.Struct, frozen=True, kw_only=True):
    """The content of the files, and where their definitions stand in it."""

    texts: Mapping[Path, str] = msgspec.field(default_factory=dict)
    """Their text with secrets masked; only of those that could be read."""
    digests: Mapping[Path, str] = msgspec.field(default_factory=dict)
    places: DefinitionPlaces = NO_PLACES

    def excerpt(self, place: Place) -> str | None:
        """Return the lines of a definition, masked; None for one that is not written in the files."""
        found = self.places.lines.get(place)
        if found is None or place in self.places.origins or found[0] not in self.texts:
            return None
        lines = self.texts[found[0]].split("\n")[found[1] - 1 :]
        depth = _depth(lines[0])
        end = next((at for at, line in enumerate(lines) if at and line.strip() and _depth(line) <= depth), len(lines))
        return "\n".join(line[depth:] for line in lines[:end]).rstrip()


class ConfigFileReader:
    """Reads the files for the console."""

    def __init__(self, pipeline: ReloadPipeline, *, state: Callable[[], object]) -> None:
        """Read nothing yet; `state` changes whenever the files should be read again."""
        self._pipeline: Final = pipeline
        self._state: Final = state
        self._lock: Final = asyncio.Lock()
        self._read: tuple[object, ConfigFiles] | None = None

    async def written(self) -> ConfigFiles:
        """Return the files as they are; nothing if they cannot be read at all."""
        # One at a time: two pages that open together have the files read once.
        async with self._lock:
            state = self._state()
            if self._read is None or self._read[0] != state:
                self._read = state, await self._written()
            return self._read[1]

    async def _written(self) -> ConfigFiles:
        try:
            return await self._pipeline.read_again(_look)
        except ConfigError:
            return ConfigFiles()


def _look(loaded: LoadedConfig) -> ConfigFiles:
    return ConfigFiles(
        texts={path: loaded.redactor.text(text) for path, text in loaded.sources.texts().items()},
        digests=dict(loaded.files),
        places=definition_places(loaded),
    )


def _depth(line: str) -> int:
    return len(line) - len(line.lstrip(" "))
