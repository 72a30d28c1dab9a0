"""The four steps of a reload: load, compile, swap, announce.

`load` and `compile` run as one job in a thread. They include all steps that can fail, and do not change the served
catalog. `swap` and `announce` cannot fail and run on the event loop. `Reloader` runs one reload at a time.
"""

import asyncio
import gc
import hashlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, Final, TypeVar

import structlog
from msgspec.structs import replace

from gateway.access.authenticator import Authenticator, check_auth
from gateway.audit.audit_log import check_audit_is_apart
from gateway.audit.recorder import AuditRecorder
from gateway.audit.records import check_labels
from gateway.background_tasks import BackgroundTasks
from gateway.catalog.compile.compiler import compile_catalog
from gateway.catalog.digests import locked_owners
from gateway.catalog.file_dependencies import FileDependencies
from gateway.catalog.lock import read_lock
from gateway.catalog.plugins import Plugins
from gateway.catalog.store import CatalogStore
from gateway.config.definition_source import NO_OWNERS, DefinitionSource, merge
from gateway.config.loader import LoadedConfig, load
from gateway.config.models.document import Document
from gateway.config.models.server import Listen
from gateway.config.reading.merger import DEFINITIONS
from gateway.config.secrets.redactor import LiveRedactor
from gateway.errors import ConfigError, Problem
from gateway.executors.shared_services import Services
from gateway.executors.shell.sandbox import sandbox_problem
from gateway.reload.candidate import NO_PLACES, Candidate, definition_places
from gateway.reload.exposure import check_still_closed, exposures
from gateway.reload.watch_plan import WatchPlan, watch_dependencies, watch_loaded
from gateway.threads import DaemonThreadPool
from gateway.transports.listener.server_tls import ServerIdentity, ServerTls, identity_files, load_identity

log: Final = structlog.get_logger(__name__)

T = TypeVar("T")

FIXED_SECTIONS: Final = ("listen", "limits")
"""Sections that require a restart."""

CHECKS: Final = (check_auth, check_labels, check_audit_is_apart)
"""Checks of sections that are not part of the catalog."""

LOOKED_UP: Final = ("rate_limit", "concurrency", "queue", "sampling")
"""Keys of `limits` that are read for each call, so that a reload can change them."""


class ReloadPipeline:
    """Loads the files and holds the served catalog."""

    def __init__(  # noqa: PLR0913 - the parts that a reload renews
        self,
        path: Path,
        *,
        sources: Sequence[DefinitionSource] = (),
        services: Services,
        authenticator: Authenticator,
        audit: AuditRecorder,
        grace: timedelta,
        redactor: LiveRedactor,
        is_exposed: Callable[[Listen], bool] = lambda _: False,
        keeps_places: bool = False,
    ) -> None:
        """Create the pipeline.

        Args:
            path: The file, or the directory of files.
            sources: Additional sources of definitions.
            services: Services that all executors share.
            authenticator: Receives the section `auth` of each served configuration.
            audit: Receives the section `audit` of each served configuration, and records reloads.
            grace: How long running calls can use replaced plugin code.
            redactor: Updated on each load to mask the secrets of the last read files and of the served catalog.
            is_exposed: Returns whether other machines can reach the listeners.
            keeps_places: Whether candidates contain the locations of definitions.
        """
        self._grace: Final = grace.total_seconds()
        self._keeps_places: Final = keeps_places
        self._services: Final = services
        self._authenticator: Final = authenticator
        self._audit: Final = audit
        self._plugins: Final = Plugins()
        # Use a separate thread for reloads, so that calls cannot delay a reload. A plugin that hangs at import does not
        # delay the exit.
        self._thread: Final = DaemonThreadPool(1)
        self._attempted = WatchPlan()
        """The watch plan of the last read files, even if they are not served."""
        self._background: Final = BackgroundTasks()
        self._following: asyncio.Task[None] | None = None
        self._is_closing: Final = asyncio.Event()
        self._path: Final = path
        self._sources: Final = tuple(sources)
        self.source_changed: Final = asyncio.Event()
        """A source with new definitions sets this event to trigger a reload."""
        self.redactor: Final = redactor
        self._is_exposed: Final = is_exposed
        self.served: Candidate
        self.store: CatalogStore
        self.first: Document
        """The document at the start without definitions, to detect changes that require a restart."""
        self.tls: ServerTls | None = None

    @property
    def restart_required(self) -> list[str]:
        """Changed sections that require a restart."""
        first, now = self.first, self.served.document
        return [name for name in FIXED_SECTIONS if fixed(dict(getattr(first, name))) != fixed(dict(getattr(now, name)))]

    @property
    def watch_plan(self) -> WatchPlan:
        """The combined watch plan of the served files and the last read files."""
        return self.served.watch | self._attempted

    async def open(self, config: LoadedConfig) -> None:
        """Compile the first catalog.

        Raises:
            ConfigError: The files cannot be served.
        """
        self.redactor.replace(config.redactor)
        if not config.start_problems().has_errors:  # An invalid file must not start programs.
            await self._follow_all(config.document)
        first = partial(self._compile_first, config)
        del config
        self.served = await self._in_thread(first)
        await self._plugins.start(self._services.hook_threads)
        self._authenticator.configure(self.served.document.auth, views=self.served.document.views)
        self.redactor.replace(self.served.catalog.redactor)
        self.first = self.served.document.model_copy(update={section: {} for section in DEFINITIONS})
        self.tls = None if self.served.identity is None else ServerTls(self.served.identity)
        self.store = CatalogStore(self.served.catalog)
        self._unload_plugins()
        _report(self.served.news)

    async def close(self) -> None:
        self._is_closing.set()
        if self._following is not None:
            self._following.cancel()
        await self._background.wait()
        await self._plugins.stop(self._services.hook_threads)
        await self._thread.stop()

    async def load_and_compile(self) -> Candidate:
        """Load and compile the files in the reload thread, then start plugins. Raise ConfigError for invalid files."""
        generation, served = self.store.current.generation + 1, self.served
        try:
            candidate = await self._in_thread(lambda: self.compile(self.load(), generation=generation, served=served))
            await self._plugins.start(self._services.hook_threads)
        except ConfigError as error:
            self._audit.refuse(error)
            raise
        return candidate

    async def read_again(self, look: Callable[[LoadedConfig], T]) -> T:
        """Load the files without serving them, and return the result of `look`, which is called in the reload thread.

        Raises:
            ConfigError: Nothing could be read.
        """
        return await self._in_thread(lambda: look(self._load()))

    def load(self) -> LoadedConfig:
        """Read the files, and mask their secrets from now on. Raise ConfigError if nothing could be read."""
        sandbox_problem.cache_clear()  # The availability of sandboxes can have changed.
        loaded = self._load()
        self.redactor.replace(self.served.catalog.redactor | loaded.redactor)
        return loaded

    def _load(self) -> LoadedConfig:
        """Read the files and add the definitions of the sources.

        If two sources offer a name, the source that serves the name keeps it, unless the lock has changed.
        """
        served, config = self.served, load(self._path)
        lock = read_lock(config.lock_file)
        owners = served.owners if lock == served.lock else NO_OWNERS
        return merge(config, self._sources, owners={**owners, **locked_owners(config, lock.pins)})

    def compile(self, loaded: LoadedConfig, *, generation: int, served: Candidate | None) -> Candidate:
        """Compile a candidate. This method blocks. The watch plan is updated even on failure.

        Raises:
            ConfigError: The files cannot be served.
        """
        dependencies = FileDependencies() if served is None else FileDependencies(served_roots=served.roots)
        try:
            config, identity = with_identity(loaded, dependencies=dependencies)
            lock = read_lock(config.lock_file)
            catalog = compile_catalog(
                config,
                services=self._services,
                plugins=self._plugins,
                generation=generation,
                dependencies=dependencies,
                lock=lock,
                checks=(*CHECKS, check_still_closed) if self._must_stay_closed(served) else CHECKS,
            )
        finally:
            self._attempted = watch_loaded(loaded) | watch_dependencies(loaded.lock_file, dependencies)
        known = frozenset[Problem]() if served is None else frozenset(served.catalog.warnings)
        code = self._plugins.contents
        candidate = Candidate(
            document=config.document,
            root=config.root,
            files={**config.files, **code},
            digest=hashlib.sha256("".join([config.digest, *code.values()]).encode()).hexdigest(),
            catalog=catalog,
            identity=identity,
            watch=self._attempted,
            roots=dependencies.roots,
            lock=lock,
            owners=config.owners,
            exposures=exposures(config),
            places=definition_places(config) if self._keeps_places else NO_PLACES,
            audit_place=config.sources.locate(("audit", "file")),
            news=tuple(problem for problem in catalog.warnings if problem not in known),
        )
        if served is not None:
            self._audit.check(candidate)
        return candidate

    def swap(self, candidate: Candidate) -> None:
        """Serve the candidate to all new calls."""
        self._authenticator.configure(candidate.document.auth, views=candidate.document.views)
        self.served = candidate
        self.store.swap(candidate.catalog)
        if self.tls is not None and candidate.identity is not None:
            self.tls.use(candidate.identity)
        self._unload_plugins()
        self._follow(candidate.document)

    def announce(self) -> None:
        """Notify clients, and record and log the reload."""
        served = self.served
        self.store.announce()
        self._audit.serve(served)
        log.info("reloaded", generation=self.store.current.generation, tools=len(served.catalog.tools))
        if self.restart_required:
            log.warning("restart required", sections=self.restart_required)
        if served.news:
            self._background.begin(self._thread.run(_report, served.news, deadline=math.inf), name="report warnings")

    def _compile_first(self, config: LoadedConfig) -> Candidate:
        owners = locked_owners(config, read_lock(config.lock_file).pins)
        return self.compile(merge(config, self._sources, owners=owners), generation=1, served=None)

    async def _in_thread(self, job: Callable[[], T]) -> T:
        def run() -> T:
            with gc_paused():
                return job()

        return await self._thread.run(run, deadline=math.inf)

    def _must_stay_closed(self, served: Candidate | None) -> bool:
        return served is not None and served.document.auth is not None and self._is_exposed(self.first.listen)

    def _unload_plugins(self) -> None:
        unused = self._plugins.unload_unused()
        if unused:
            self._background.begin(self._shut_down_plugins(unused), name="plugin shutdown")

    async def _shut_down_plugins(self, modules: list[ModuleType]) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(self._grace):
                await self._is_closing.wait()
        await self._plugins.shut_down(modules, self._services.hook_threads)

    def _follow(self, document: Document) -> None:
        if not self._sources:
            return
        if self._following is not None:
            self._following.cancel()
        self._following = self._background.begin(self._follow_all(document), name="follow the sources of definitions")

    async def _follow_all(self, document: Document) -> None:
        await asyncio.gather(*(each.follow(document, self.source_changed.set) for each in self._sources))


_YOUNG: Final = 3_000
"""Number of new objects after which young objects are collected during a load. A collection takes one or two ms."""
_NEVER: Final = 2**31 - 1


@contextmanager
def gc_paused() -> Iterator[None]:
    """Limit garbage collection to young objects during a load. Then exclude the loaded objects from collection.

    Ten thousand tools are about a million objects, and each full collection would stop all threads for a second.
    Reference counting frees loaded objects, because only plugin types contain cycles.
    """
    before = gc.get_threshold()
    if before[1] == _NEVER:  # Another load has already limited the collection.
        yield
        return
    gc.set_threshold(_YOUNG, _NEVER, _NEVER)  # Survivors move to a generation that is not collected.
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.freeze()


def fixed(section: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the settings in one of `FIXED_SECTIONS` that require a restart."""
    kept = {key: value for key, value in section.items() if key not in LOOKED_UP}
    return {**kept, "tls": section.get("tls") is not None}


def _report(warnings: Iterable[Problem]) -> None:
    for problem in warnings:
        log.warning("configuration warning", problem=str(problem))


def with_identity(
    loaded: LoadedConfig, *, dependencies: FileDependencies
) -> tuple[LoadedConfig, ServerIdentity | None]:
    """Load the certificate of `listen.tls`. Its problems are added to the returned configuration."""
    tls = loaded.document.listen.tls
    if tls is None:
        return loaded, None
    problems = loaded.start_problems()
    place = problems.at("listen", "tls")
    # Add the files before reading, so that missing and invalid files are watched too.
    dependencies.files.update(identity_files(tls, place))
    identity = load_identity(tls, place)
    return replace(loaded, problems=tuple(problems)), identity
