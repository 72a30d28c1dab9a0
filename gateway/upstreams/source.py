"""Provides the definitions of all configured upstream servers."""

import asyncio
import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Final

import msgspec
import structlog

from gateway.background_tasks import BackgroundTasks
from gateway.catalog.catalog import Catalog
from gateway.catalog.digests import PAGES, DefinitionDigest, Name
from gateway.catalog.lock import Lock, LockedPages, page_digest, read_lock
from gateway.config.definition_source import DocumentStore, SourceEntry
from gateway.config.diagnostics.problems import Problems
from gateway.config.loader import LoadedConfig
from gateway.config.models.definition_keys import ASK_TIMEOUT
from gateway.config.models.document import Document
from gateway.config.models.upstreams import Upstream
from gateway.config.secrets.redactor import Redactor
from gateway.errors import RpcError
from gateway.events import Events, RootsChanged, SessionEnded, SignInsChanged, UpstreamResourceUpdated
from gateway.executors.cache import CachingExecutor
from gateway.executors.shared_services import Services
from gateway.json_types import DocumentPath, Json, JsonObject
from gateway.upstreams.definitions import UpstreamEntry, definitions_of, page_uris, prefix_error, sign_in_tool
from gateway.upstreams.failures import UpstreamError
from gateway.upstreams.parked_calls import ParkedCalls
from gateway.upstreams.pool import STARTING
from gateway.upstreams.relay import Relay, ResourceRelay
from gateway.upstreams.server import UpstreamServer
from gateway.upstreams.server_lists import ServerLists
from gateway.upstreams.server_spec import compile_spec

log: Final = structlog.get_logger(__name__)

FIRST_LISTS_SECONDS: Final = 5.0
_WATCH_SECONDS: Final = 5.0


class UpstreamSource:
    def __init__(
        self,
        *,
        services: Services,
        documents: DocumentStore | None,
        events: Events | None = None,
        first_lists_seconds: float | None = FIRST_LISTS_SECONDS,
    ) -> None:
        """Create the source without servers.

        `documents` stores the lists across restarts. The first `follow` waits until each server has responded or
        failed, but at most `first_lists_seconds`. None means no time limit.
        """
        self._services: Final = services
        self._documents: Final = documents
        self._events: Final = events or Events()
        self._events.subscribe(RootsChanged, self._roots_changed)
        self._events.subscribe(SessionEnded, self._session_ended)
        self._events.subscribe(SignInsChanged, self._sign_ins_changed)
        self._first_lists_seconds: Final = first_lists_seconds
        self.servers: Final[dict[str, UpstreamServer]] = {}
        self._entries: Final[dict[str, _UpstreamDefinitions]] = {}
        """The newest definitions by server name, written by the thread that loads the configuration."""
        self._is_at_start = True
        self._closing: Final = BackgroundTasks()
        self._starting: Final = asyncio.Semaphore(STARTING)
        self.parked: Final = ParkedCalls()

    def definitions(self, config: LoadedConfig, problems: Problems) -> Iterable[SourceEntry]:
        for name in self._entries.keys() - config.document.upstreams.keys():
            del self._entries[name]
        lock = read_lock(config.lock_file) if config.document.server.lock == "enforce" else None
        for name, upstream in config.document.upstreams.items():
            place = problems.at("upstreams", name)
            compile_spec(
                upstream, document=config.document, services=self._services, redactor=config.redactor, problems=place
            )
            if (error := prefix_error(name, upstream)) is not None:
                place.warning(error)
            server = self.servers.get(name)
            # A reload follows once the lists are known.
            if server is None or server.lists is None:
                yield self._sign_in_entry(name, upstream, config)
                continue
            made = self._definitions_of(name, upstream, server.lists, config, lock)
            # Warnings about the lists of a former server would be wrong.
            if server.answers_for(upstream, config.document):
                for path, warning in made.warnings:
                    place.at(*path).warning(warning)
            yield made.entry

    async def follow(self, document: Document, changed: Callable[[], None]) -> None:
        # Unchanged servers keep their sessions. Other servers are closed after their open calls.
        for name, server in self.servers.items():
            if name in self._entries and self._entries[name].lists is server.lists:
                server.is_served = True
        before = self.servers.copy()
        servers: dict[str, UpstreamServer] = {}
        new: list[UpstreamServer] = []
        for name, config in document.upstreams.items():
            known = before.get(name)
            if known is not None and known.is_for(config, document):
                known.follow(config)
                servers[name] = before.pop(name)
            elif (made := self._new_server(name, config, document, changed, before=known)) is not None:
                servers[name] = made
                new.append(made)
        # Never empty the dictionary, because another thread reads it.
        self.servers.update(servers)
        for name in self.servers.keys() - servers.keys():
            del self.servers[name]
        for server in before.values():
            self._closing.begin(server.retire(), name=f"end upstream {server.name}")
        # Start unchanged servers too, in case this reload has cancelled their start.
        await asyncio.gather(*(server.start() for server in self.servers.values()))
        if self._is_at_start:
            try:
                await self._first_lists(new)
            finally:
                self._is_at_start = False
            for server in new:  # the first catalog is compiled from these lists
                server.is_served = server.lists is not None

    async def close(self) -> None:
        # Parked calls use sessions of the servers.
        await self.parked.close()
        await asyncio.gather(*(server.close() for server in self.servers.values()))
        await self._closing.cancel()

    def watch(self, uris: Iterable[tuple[str, str]]) -> None:
        """Watch exactly these resources. Each pair contains the name of a server and a URI of that server."""
        wanted = defaultdict[str, set[str]](set)
        for name, uri in uris:
            wanted[name].add(uri)
        for name, server in self.servers.items():
            server.watch(frozenset(wanted[name]))

    async def watching(self) -> None:
        if not self.servers:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(_WATCH_SECONDS):
                await asyncio.gather(*(server.is_watching.wait() for server in self.servers.values()))

    def _roots_changed(self, event: RootsChanged) -> None:
        for server in self.servers.values():
            server.pool.roots_changed(f"session {event.session_id}")

    def _session_ended(self, event: SessionEnded) -> None:
        for server in self.servers.values():
            server.pool.end_session_of(f"session {event.session_id}")

    def _sign_ins_changed(self, _event: SignInsChanged) -> None:
        for server in self.servers.values():
            if server.lists is None:
                server.reconnect()

    def origin_of(self, catalog: Catalog, uri: str) -> tuple[str, str] | None:
        """Return the name of the server that offers a resource, and the URI of the resource at this server."""
        found = catalog.resource(uri)
        executor = None if found is None else found[0].executor
        if isinstance(executor, CachingExecutor):
            executor = executor.executor
        if not isinstance(executor, ResourceRelay):
            return None
        return executor.relay.upstream, uri.removeprefix(executor.relay.uri_prefix)

    def status(self) -> dict[str, Json]:
        found = {name: server.status() for name, server in self.servers.items()}
        for name, made in self._entries.copy().items():
            if name in found and made.pages is not None and made.pages.differing:
                found[name]["pages"] = dict(made.pages.differing)
        return found

    async def read_pages(self, loaded: LoadedConfig, problems: Problems) -> dict[Name, DefinitionDigest]:
        """Read the UI resources of all tools, and return their digests. Report unreadable resources as warnings."""
        found: dict[Name, DefinitionDigest] = {}
        for (section, _), origin in loaded.origins.items():
            if section != "tools" or origin.path[0] != "upstreams":
                continue
            name = str(origin.path[1])
            prefix = loaded.document.upstreams[name].uri_prefix or ""
            for uri in page_uris(origin.written[0]):
                owner = loaded.origins.get(("resources", f"{prefix}{uri}"), origin).path
                server = self.servers.get(str(owner[1]))
                if (PAGES, f"{prefix}{uri}") in found or server is None or owner[0] != "upstreams":
                    continue
                try:
                    found[PAGES, f"{prefix}{uri}"] = page_digest(await server.read(uri))
                except (RpcError, UpstreamError, TimeoutError) as error:
                    problems.at("upstreams", server.name).warning(f"cannot read the UI resource `{uri}`: {error}")
        return found

    @property
    def unready(self) -> list[str]:
        return [
            name
            for name, server in self.servers.items()
            if server.config.required and (server.pool.circuit.reason or server.lists is None)
        ]

    def _sign_in_entry(self, name: str, upstream: Upstream, config: LoadedConfig) -> SourceEntry:
        shared = config.document.connections.get(upstream.connection or "")
        auth = upstream.auth or (None if shared is None else shared.auth)
        if auth is None or auth.authorization_code is None:
            own = config.document.auth
            is_open = upstream.access is None and (own is None or not own.rules)
            entry = self._entry(name, upstream, config)
            unavailable = {entry.prefix: name} if is_open and upstream.tools.include else {}
            return SourceEntry(definitions={}, fingerprint="", unavailable=unavailable)
        return SourceEntry(definitions=sign_in_tool(self._entry(name, upstream, config)), fingerprint="sign_in")

    def _entry(
        self, name: str, upstream: Upstream, config: LoadedConfig, pages: LockedPages | None = None
    ) -> UpstreamEntry:
        relay = Relay(
            servers=self.servers,
            parked=self.parked,
            upstream=name,
            uri_prefix=upstream.uri_prefix or "",
            ask_timeout=config.document.defaults.ask_timeout or ASK_TIMEOUT,
            pages=pages,
        )
        return UpstreamEntry(name=name, config=upstream, relay=relay, written=_written(name, config), warnings=[])

    def _definitions_of(
        self,
        name: str,
        upstream: Upstream,
        lists: ServerLists,
        config: LoadedConfig,
        lock: Lock | None,
    ) -> "_UpstreamDefinitions":
        locked = {} if lock is None else lock.offered.get(name, {})
        before = self._entries.get(name)
        made_of = (upstream, _written(name, config), config.document.defaults.ask_timeout, lock)
        if before is not None and before.lists is lists and before.made_of == made_of:
            return before
        tools = [*lists.tools, *locked.get("tools", [])]
        pages = None if lock is None else _locked_pages(lock, upstream.uri_prefix or "", tools)
        entry = self._entry(name, upstream, config, pages)
        as_locked = msgspec.structs.replace(entry, warnings=[])
        made = self._entries[name] = _UpstreamDefinitions(
            lists=lists,
            made_of=made_of,
            pages=pages,
            entry=SourceEntry(
                definitions=definitions_of(entry, lists),
                fingerprint=_fingerprint(name, lists),
                reviewed=definitions_of(as_locked, msgspec.structs.replace(lists, **locked)) if locked else {},
                instructions={name: lists.instructions} if upstream.instructions and lists.instructions else {},
            ),
            warnings=entry.warnings,
        )
        return made

    def _new_server(
        self,
        name: str,
        config: Upstream,
        document: Document,
        changed: Callable[[], None],
        *,
        before: UpstreamServer | None,
    ) -> UpstreamServer | None:
        problems = Problems().at("upstreams", name)
        redactor = Redactor() if config.auth is None else Redactor(config.auth.secrets())
        spec = compile_spec(config, document=document, services=self._services, redactor=redactor, problems=problems)
        if spec is None or problems.has_errors:
            return None  # `definitions` reports the problems
        prefix = config.uri_prefix or ""

        def report() -> None:
            # The first catalog is compiled after the wait for the first lists, so no reload is needed.
            if not self._is_at_start:
                changed()

        return UpstreamServer(
            name,
            config,
            spec,
            documents=self._documents,
            changed=report,
            updated=lambda uri: self._events.publish(UpstreamResourceUpdated(f"{prefix}{uri}")),
            connection=document.connections.get(config.connection or ""),
            inherited=None if before is None else before.lists,
            starting=self._starting,
        )

    async def _first_lists(self, new: list[UpstreamServer]) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(self._first_lists_seconds):
                await asyncio.gather(*(server.known.wait() for server in new))


class _UpstreamDefinitions(msgspec.Struct, frozen=True, kw_only=True):
    lists: ServerLists
    made_of: tuple[Upstream, JsonObject, timedelta | None, Lock | None]
    pages: LockedPages | None
    entry: SourceEntry
    warnings: Sequence[tuple[DocumentPath, str]]


def _locked_pages(lock: Lock, prefix: str, tools: Iterable[JsonObject]) -> LockedPages:
    pins = {name: pin for name, pin in (lock.pins or {}).items() if name[0] == PAGES}
    return LockedPages(pins=pins, required=frozenset(f"{prefix}{uri}" for tool in tools for uri in page_uris(tool)))


def _written(name: str, config: LoadedConfig) -> JsonObject:
    found = config.sources.written(("upstreams", name))
    return found if isinstance(found, Mapping) else {}


def _fingerprint(name: str, lists: ServerLists) -> str:
    made_of = [name, lists.tools, lists.resources, lists.templates, lists.prompts, lists.instructions]
    return hashlib.sha256(msgspec.json.encode(made_of)).hexdigest()
