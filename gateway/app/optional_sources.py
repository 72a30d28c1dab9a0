"""The sources of definitions that only some files use, upstreams and OpenAPI documents.

Why they are imported by name once the file has an entry for them: with all that they import, they take a twentieth of
the time to start. The first entry comes with the start or with a reload, so that no request waits for it.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final, Generic, Literal, Protocol, TypeVar

from gateway.catalog.catalog import Catalog
from gateway.config.definition_source import DefinitionSource, DocumentStore, SourceEntry
from gateway.config.diagnostics.problems import Problems
from gateway.config.loader import LoadedConfig
from gateway.config.models.document import Document
from gateway.executors.shared_services import Services
from gateway.json_types import JsonObject
from gateway.lean_imports import import_lean

if TYPE_CHECKING:
    from gateway.openapi.source import OpenApiSource
    from gateway.state.mailbox import Mailbox
    from gateway.upstreams.server import UpstreamServer
    from gateway.upstreams.source import UpstreamSource

_UPSTREAMS: Final = "gateway.upstreams.source"
_OPENAPI: Final = "gateway.openapi.source"
_OPENAPI_BY_URL: Final = "gateway.openapi.remote_documents"


class _Source(DefinitionSource, Protocol):
    def status(self) -> JsonObject: ...
    async def close(self) -> None: ...


S = TypeVar("S", bound=_Source)
S_co = TypeVar("S_co", bound=_Source, covariant=True)


class _Make(Protocol[S_co]):
    """Imports and makes a source."""

    def __call__(self, *, is_at_start: bool) -> S_co: ...


class OptionalSource(Generic[S]):
    """Stands for a source until its section of the file has an entry, and passes everything on from then on."""

    def __init__(self, section: Literal["upstreams", "openapi"], make: _Make[S]) -> None:
        """Make nothing yet."""
        self._section: Final = section
        self._make: Final = make
        self._is_at_start = True
        self.made: S | None = None

    def definitions(self, config: LoadedConfig, problems: Problems) -> Iterable[SourceEntry]:
        source = self._source(config.document)
        return () if source is None else source.definitions(config, problems)

    async def follow(self, document: Document, changed: Callable[[], None]) -> None:
        source = self._source(document)
        self._is_at_start = False
        if source is not None:
            await source.follow(document, changed)

    def status(self) -> JsonObject:
        return {} if self.made is None else self.made.status()

    async def close(self) -> None:
        if self.made is not None:
            await self.made.close()

    def _source(self, document: Document) -> S | None:
        if self.made is None and getattr(document, self._section):
            self.made = self._make(is_at_start=self._is_at_start)
        return self.made


class Upstreams(OptionalSource["UpstreamSource"]):
    """The upstreams of the file, if it has any."""

    def __init__(
        self,
        *,
        services: Services,
        documents: DocumentStore | None,
        waits_for_first_lists: bool,
        mailbox: "Mailbox | None",
    ) -> None:
        """Make nothing yet; `waits_for_first_lists`: see `UpstreamSource`, where it is a time."""
        self.updated: Callable[[str], None] = lambda _: None
        """Called with the URI of a resource that was updated; set once there is somebody to be told."""

        def make(*, is_at_start: bool) -> "UpstreamSource":
            room = import_lean(_UPSTREAMS)
            seconds = None if waits_for_first_lists else room.FIRST_LISTS_SECONDS
            made: UpstreamSource = room.UpstreamSource(
                services=services,
                documents=documents,
                updated=self._resource_updated,
                first_lists_seconds=seconds,
                is_at_start=is_at_start,
                mailbox=mailbox,
            )
            return made

        super().__init__("upstreams", make)

    @property
    def servers(self) -> "Mapping[str, UpstreamServer]":
        return {} if self.made is None else self.made.servers

    @property
    def unready(self) -> list[str]:
        return [] if self.made is None else self.made.unready

    def _resource_updated(self, uri: str) -> None:
        self.updated(uri)

    def origin_of(self, catalog: Catalog, uri: str) -> tuple[str, str] | None:
        return None if self.made is None else self.made.origin_of(catalog, uri)

    def watch(self, uris: Iterable[tuple[str, str]]) -> None:
        if self.made is not None:
            self.made.watch(uris)

    async def watching(self) -> None:
        if self.made is not None:
            await self.made.watching()

    def roots_changed(self, session_id: str) -> None:
        if self.made is not None:
            self.made.roots_changed(session_id)

    def session_ended(self, session_id: str) -> None:
        if self.made is not None:
            self.made.session_ended(session_id)

    def give_up(self, kept: JsonObject) -> None:
        if self.made is not None:
            self.made.parked.give_up(kept)


def openapi_documents(*, services: Services, documents: DocumentStore | None) -> "OptionalSource[OpenApiSource]":
    """The OpenAPI documents of the file, if it has any; those with URLs are remembered in `documents`."""

    def make(*, is_at_start: bool) -> "OpenApiSource":
        remote = import_lean(_OPENAPI_BY_URL).RemoteDocuments(
            services=services, documents=documents, is_at_start=is_at_start
        )
        made: OpenApiSource = import_lean(_OPENAPI).OpenApiSource(remote)
        return made

    return OptionalSource("openapi", make)


def local_documents() -> "OptionalSource[OpenApiSource]":
    """The OpenAPI documents of the file, if it has any; nobody is asked for those with URLs, which offer nothing."""

    def make(**_: bool) -> "OpenApiSource":
        made: OpenApiSource = import_lean(_OPENAPI).OpenApiSource()
        return made

    return OptionalSource("openapi", make)
