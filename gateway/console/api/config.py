"""`/-/api/config` returns the files on disk and the effective configuration, with secrets masked."""

import asyncio
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import msgspec
import yaml
from aiohttp import web

from gateway.config.loader import LoadedConfig
from gateway.config.secrets.literal_secrets import masked_document
from gateway.config.secrets.redactor import LiveRedactor
from gateway.console.console import READ, Route
from gateway.console.reload_history import ReloadHistory
from gateway.console.responses import current_problems, json_response_by_thread, problem_json
from gateway.errors import ConfigError
from gateway.json_types import Json
from gateway.reload.candidate import NO_PLACES, Candidate, DefinitionPlaces, Place, definition_places
from gateway.reload.pipeline import ReloadPipeline
from gateway.reload.reloader import Reloader
from gateway.transports.http.request import HttpRequest

_WIDTH: Final = 120
_DUMPER: Final = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
"""LibYAML's dumper if it is available, because it is ten times as fast as the Python dumper."""


class ConfigFiles(msgspec.Struct, frozen=True, kw_only=True):
    texts: Mapping[Path, str] = msgspec.field(default_factory=dict)
    digests: Mapping[Path, str] = msgspec.field(default_factory=dict)
    places: DefinitionPlaces = NO_PLACES

    def excerpt(self, place: Place) -> str | None:
        """Return the masked lines of the definition at `place`, or None if the definition is not in the files."""
        found = self.places.lines.get(place)
        # A definition that a source such as an upstream generated has the line of the source, but no lines in a file.
        if found is None or place in self.places.origins or found[0] not in self.texts:
            return None
        lines = self.texts[found[0]].split("\n")[found[1] - 1 :]
        depth = _depth(lines[0])
        end = next((at for at, line in enumerate(lines) if at and line.strip() and _depth(line) <= depth), len(lines))
        return "\n".join(line[depth:] for line in lines[:end]).rstrip()


class ConfigApi:
    """Reads the configuration files again after each reload, because the gateway does not keep their text in memory."""

    def __init__(
        self, pipeline: ReloadPipeline, reloader: Reloader, *, reloads: ReloadHistory, redactor: LiveRedactor
    ) -> None:
        self._pipeline: Final = pipeline
        self._reloader: Final = reloader
        self._reloads: Final = reloads
        self._redactor: Final = redactor
        self._lock: Final = asyncio.Lock()
        self._read: tuple[object, ConfigFiles] | None = None

    def routes(self) -> Iterator[Route]:
        yield "/config", READ, self._config

    async def written(self) -> ConfigFiles:
        """Return the configuration files, or empty `ConfigFiles` if the files cannot be read."""
        async with self._lock:
            state = self._pipeline.store.current.generation, self._reloader.status.at
            if self._read is None or self._read[0] != state:
                self._read = state, await self._written()
            return self._read[1]

    async def _written(self) -> ConfigFiles:
        try:
            return await self._pipeline.read_again(_look)
        except ConfigError:
            return ConfigFiles()

    async def _config(self, request: HttpRequest) -> web.Response:
        written, served = await self.written(), self._pipeline.served
        problems, reloads = current_problems(self._reloader, self._pipeline.store), list(self._reloads.listed())
        wants_effective = request.raw.query.get("effective") != "0"

        def made() -> Json:
            answer = {
                "files": [
                    {"path": str(path), "text": text, "digest": written.digests.get(path, "")}
                    for path, text in written.texts.items()
                ],
                "effective": _effective(served, self._redactor) if wants_effective else None,
                "problems": [problem_json(each) for each in problems],
                "reloads": reloads,
                "lock": {
                    "file": str(served.lock.path) if served.lock.pins is not None or served.lock.problem else None,
                    "differs": list(served.lock_differences),
                },
                "restartRequired": self._pipeline.restart_required,
            }
            return self._redactor.json(answer)

        return await json_response_by_thread(made, request)


def _effective(served: Candidate, redactor: LiveRedactor) -> str:
    """Return the configuration as one YAML document, with includes and variables resolved and secrets masked."""
    # Convert the values to JSON and back, because YAML would tag strings whose type is a subclass of str.
    document = json.loads(json.dumps(redactor.json(masked_document(served.document))))
    text: str = yaml.dump(document, Dumper=_DUMPER, sort_keys=False, allow_unicode=True, width=_WIDTH)
    return text


def _look(loaded: LoadedConfig) -> ConfigFiles:
    return ConfigFiles(
        texts={path: loaded.redactor.text(text) for path, text in loaded.sources.texts().items()},
        digests=dict(loaded.files),
        places=definition_places(loaded),
    )


def _depth(line: str) -> int:
    return len(line) - len(line.lstrip(" "))
