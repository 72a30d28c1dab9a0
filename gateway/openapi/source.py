"""Loads definitions from OpenAPI documents."""

import hashlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final

import msgspec
import orjson
from pydantic import ValidationError

from gateway.config.definition_source import SourceEntry
from gateway.config.diagnostics.near_misses import did_you_mean
from gateway.config.diagnostics.problems import Problems
from gateway.config.loader import LoadedConfig, Unavailable
from gateway.config.models.backends import Connection
from gateway.config.models.base import defaults_of
from gateway.config.models.definition_keys import Definition, ToolAnnotations, narrowed
from gateway.config.models.definitions import OperationOverride, Resource, Tool
from gateway.config.models.document import Document
from gateway.config.models.interpolated_text import Interpolation, parts_of
from gateway.config.models.openapi import OpenApi
from gateway.config.reading.source_file import content_key
from gateway.config.reading.source_map import SourceDefinition
from gateway.json_types import DocumentPath, Json, JsonObject
from gateway.net.address_guard import compile_policy
from gateway.net.sender import warn_if_blocked
from gateway.openapi.definitions import (
    MadeDefinition,
    definitions_of,
)
from gateway.openapi.document import DocumentError, LocalDocuments, References, check_readable
from gateway.openapi.remote_documents import FetchedDocuments, RemoteDocuments

_SHARED_KEYS: Final = ("timeout", "concurrency", "rate_limit", "requires")
"""Keys of an entry that apply to all its definitions. An override takes precedence."""
_MODELS: Final[Mapping[str, type[Tool] | type[Resource]]] = {"tools": Tool, "resources": Resource}


OpenedDocuments = LocalDocuments | FetchedDocuments
"""A document with the documents that it references."""


class OpenApiSource:
    """Implements `DefinitionSource` for all OpenAPI documents of the configuration."""

    def __init__(self, remote: RemoteDocuments | None = None) -> None:
        """Create the source. Without `remote`, documents with URLs are skipped."""
        self._remote: Final = remote
        self._known: dict[str, _LoadedEntry] = {}

    def definitions(self, config: LoadedConfig, problems: Problems) -> Iterable[SourceEntry]:
        before, self._known = self._known, {}
        for name, entry in config.document.openapi.items():
            place = problems.at("openapi", name)
            known = self._entry(name, entry, config, place, before.get(name))
            if known is not None:
                self._known[name] = known
                # Report the problems of unchanged entries again, because each load has a new report.
                for path, message in known.errors:
                    place.at(*path).error(message)
                for path, message in known.warnings:
                    place.at(*path).warning(message)
                yield known.entry

    async def follow(self, document: Document, changed: Callable[[], None]) -> None:
        if self._remote is not None:
            await self._remote.follow(document, changed)

    def _entry(
        self, name: str, entry: OpenApi, config: LoadedConfig, place: Problems, before: "_LoadedEntry | None"
    ) -> "_LoadedEntry | None":
        connection = config.document.connections.get(entry.connection or "")
        if entry.connection is not None and connection is None:
            # A connection with errors is also missing, but has been reported.
            if not config.is_hidden("connections", entry.connection):
                known = did_you_mean(entry.connection, [*config.document.connections])
                place.at("connection").error(f"unknown connection `{entry.connection}`{known}")
            return None
        if entry.is_remote and self._remote is None:
            private = entry.allow_private
            if private is None:
                private = connection is not None and connection.allow_private
            warn_if_blocked(entry.document, compile_policy(private, Problems()), place.at("document"))
        documents = self._opened(name, entry, place)
        if documents is None:
            return None
        try:
            documents.source(documents.uri)
        except DocumentError as error:
            place.at("document").error(str(error))
            # Keep the entry's files, so that fixing the document triggers a reload.
            return _nothing(documents.files)
        written = config.sources.written(("openapi", name))
        # Include the text before interpolation, because the lock file pins that text.
        key = content_key(name, entry, connection, written)
        if (
            before is not None
            and before.key == key
            and all(_digest(documents, uri) == digest for uri, digest in before.digests.items())
        ):
            return before
        try:
            return _loaded(
                name, entry, connection, documents, written=written if isinstance(written, Mapping) else {}, key=key
            )
        except DocumentError as error:
            place.at("document").error(str(error))
            return _nothing(documents.files)

    def _opened(self, name: str, entry: OpenApi, place: Problems) -> OpenedDocuments | None:
        try:
            check_readable(entry.document)
        except DocumentError as error:
            place.at("document").error(str(error))
            return None
        if not entry.is_remote:
            return LocalDocuments(place.directory / entry.document)
        if self._remote is None:
            return None
        documents = self._remote.opened(name)
        if documents is None:
            place.at("document").warning(f"is not available yet: {self._remote.reason(name) or 'no response in time'}")
        return documents


class _LoadedEntry(msgspec.Struct, frozen=True, kw_only=True):
    """The definitions of one entry, and the digests of the documents that the definitions were built from."""

    key: bytes
    digests: Mapping[str, str]
    """The digests of all documents that were read, by URI."""
    entry: SourceEntry
    errors: tuple[tuple[tuple[str, ...], str], ...] = ()
    warnings: tuple[tuple[tuple[str, ...], str], ...] = ()


def _nothing(files: Mapping[Path, str]) -> _LoadedEntry:
    entry = SourceEntry(definitions={}, fingerprint="", files=dict(files))
    return _LoadedEntry(key=b"", digests={}, entry=entry)


def _digest(documents: OpenedDocuments, uri: str) -> str:
    try:
        return hashlib.sha256(documents.source(uri)).hexdigest()
    except DocumentError:
        return ""


def _loaded(  # noqa: PLR0913 - what an entry is made of
    name: str,
    entry: OpenApi,
    connection: Connection | None,
    documents: OpenedDocuments,
    *,
    written: JsonObject,
    key: bytes,
) -> _LoadedEntry:
    opened: dict[str, str] = {}

    def open_document(uri: str) -> JsonObject:
        opened[uri] = _digest(documents, uri)  # also if it is missing, because it can appear later
        return documents.open(uri)

    references = References(open_document)
    found = definitions_of(documents.uri, references, name=name, config=entry, connection=connection)
    definitions: dict[tuple[str, str], SourceDefinition] = {}
    contents = hashlib.sha256()
    for each in found.made:
        override = entry.override.get(each.override or "", _NO_OVERRIDE)
        try:
            model = _with_overrides(_MODELS[each.kind].model_validate(each.data), entry, override)
        # An operation that the models reject is skipped. The author of the document cannot fix it.
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            reason = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
            found.left_out.append((each.operation, reason))
            continue
        contents.update(content_key(each.kind, each.name, each.data))
        definitions[each.kind, each.name] = _source_definition(each, model, name, written)
    return _LoadedEntry(
        key=key,
        digests=opened,
        entry=SourceEntry(
            definitions=definitions,
            fingerprint=contents.hexdigest(),  # covers only the definitions, so that it is equal in every process
            files=dict(documents.files),
            left_out=tuple(
                Unavailable(kind="openapi", name=f"{name}: {operation}", reason=reason)
                for operation, reason in found.left_out
            ),
        ),
        errors=tuple(found.errors),
        warnings=tuple(found.warnings),
    )


def _source_definition(made: MadeDefinition, model: Definition, name: str, written: JsonObject) -> SourceDefinition:
    path: DocumentPath = ("openapi", name)
    override: Json = None
    if made.override is not None:
        path = (*path, "override", made.override)
        overrides = written.get("override")
        override = overrides.get(made.override) if isinstance(overrides, Mapping) else None
    shared = {key: written[key] for key in ("access", "tags", *_SHARED_KEYS) if key in written}
    data = orjson.dumps(made.data, default=_uninterpolated, option=orjson.OPT_PASSTHROUGH_SUBCLASS)
    return SourceDefinition(path=path, written=[orjson.loads(data), override, shared], config=model)


_NO_OVERRIDE: Final = defaults_of(OperationOverride)


def _uninterpolated(text: str) -> str:
    """Remove interpolated values, so that a lock file contains no secrets and does not change when secrets rotate."""
    return "".join("${}" if isinstance(part, Interpolation) else part for part in parts_of(text))


def _with_overrides(model: Definition, config: OpenApi, override: OperationOverride) -> Definition:
    changes: dict[str, Json] = {}
    for key in _SHARED_KEYS:
        if key in config.model_fields_set:
            changes[key] = getattr(config, key)
    known = type(model).model_fields.keys()
    # The description of the override is already in the data.
    for key in override.model_fields_set & known - {"description"}:
        changes[key] = getattr(override, key)
    tags = [*model.tags, *config.tags, *override.tags]
    changes["tags"] = tuple(dict.fromkeys(tags))
    changes["access"] = narrowed(config.access, override.access)
    if isinstance(model, Tool):
        changes["annotations"] = _annotations(model.annotations, override.annotations)
        if override.retry is not None and model.http is not None:
            changes["http"] = model.http.model_copy(update={"retry": override.retry})
    return model.model_copy(update=changes)


def _annotations(made: ToolAnnotations | None, override: ToolAnnotations | None) -> ToolAnnotations | None:
    if override is None or made is None:
        return override or made
    return made.model_copy(update=override.model_dump(exclude_none=True))
