"""The reload in four functions: load, compile, swap, announce.

`load` and `compile` do everything that can fail, as one job of one thread, and touch nothing that is served. `swap` and
`announce` cannot fail and run on the event loop in one step: an assignment, then work in proportion to the number of
clients. Reloads run one after the other: `Reloader` sees to that, and says when one is due.
"""

import asyncio
import hashlib
import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Final, TypeVar

import structlog
from msgspec.structs import replace

from gateway.access.authenticator import Authenticator, check_auth
from gateway.audit.audit_log import check_audit_is_apart
from gateway.audit.recorder import AuditRecorder
from gateway.audit.records import check_labels
from gateway.background_tasks import BackgroundTasks
from gateway.catalog.compile.compiler import compile_catalog
from gateway.catalog.file_dependencies import FileDependencies
from gateway.catalog.keep_locked import keep_locked
from gateway.catalog.lockfile.digests import locked_owners
from gateway.catalog.lockfile.lock import LOCK_NAME, read_lock
from gateway.catalog.plugins.plugins import Plugins
from gateway.catalog.store import CatalogStore, Succession
from gateway.config.definition_source import NO_OWNERS, DefinitionSource, merge
from gateway.config.loader import LoadedConfig, load
from gateway.config.models.base import Model
from gateway.config.models.document import Document
from gateway.config.models.server import Limits, Listen
from gateway.config.reading.merger import DEFINITIONS
from gateway.config.secrets.redactor import LiveRedactor
from gateway.errors import ConfigError, Problem
from gateway.executors.shared_services import Services
from gateway.executors.shell.sandbox import forget_sandboxes
from gateway.reload.candidate import NO_PLACES, Candidate, definition_places
from gateway.reload.exposure import check_still_closed, exposures
from gateway.reload.interpreter_tuning import gc_paused
from gateway.reload.watch_plan import WatchPlan, watch_dependencies, watch_loaded
from gateway.threads import DaemonThreadPool
from gateway.transports.listener.server_tls import ServerIdentity, ServerTls, identity_files, load_identity

log: Final = structlog.get_logger()

T = TypeVar("T")

FIXED_SECTIONS: Final = ("listen", "limits")
"""Sections of the file that only a start of the process takes up."""

CHECKS: Final = (check_auth, check_labels, partial(check_audit_is_apart, reserved=(LOCK_NAME,)))
"""Checks of the sections that no part of the catalog is made of; for every command that compiles."""

LOOKED_UP: Final = ("rate_limit", "concurrency", "queue", "sampling")
"""Keys of `limits` that each call looks up, so that a reload changes them."""


class ReloadPipeline:
    """Brings what is on disk into service, and holds what is served now."""

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
        """Do nothing yet.

        Args:
            path: the file, or the directory of files.
            sources: the sources of definitions beside it.
            services: shared by all executors.
            authenticator: follows the section `auth`.
            audit: follows the section `audit`, and records reloads.
            grace: how long calls that began before a reload may use the plugin code that it replaced.
            redactor: masks the secrets of the files as they were last read, even if they are not served, and the
                secrets of the catalog that was served then. Calls that began earlier still use the latter.
            is_exposed: whether other machines can reach the listeners of the daemon.
            keeps_places: whether candidates say where their definitions stand.
        """
        self._grace: Final = grace.total_seconds()
        self._keeps_places: Final = keeps_places
        self._services: Final = services
        self._authenticator: Final = authenticator
        self._audit: Final = audit
        self._plugins: Final = Plugins()
        # Reloads have a thread of their own: calls may not delay them, nor a plugin that hangs at import hold the exit.
        self._thread: Final = DaemonThreadPool(1)
        self._attempted = WatchPlan()
        """Watches what was read last, should that not be served."""
        self._prepared: Succession | None = None
        """The work for the next swap that could be done before it."""
        self._background: Final = BackgroundTasks()
        self._following: asyncio.Task[None] | None = None
        self._is_closing: Final = asyncio.Event()
        self._path: Final = path
        self._sources: Final = tuple(sources)
        self.source_changed: Final = asyncio.Event()
        """Set by a source that has something new to offer; a reload follows."""
        self.redactor: Final = redactor
        self._is_exposed: Final = is_exposed
        self.served: Candidate
        self.store: CatalogStore
        self.first: Document
        """The document of the start, but for definitions, by which the fixed sections are as they are."""
        self.tls: ServerTls | None = None
        """Shows the certificate of the live configuration."""

    @property
    def restart_required(self) -> list[str]:
        """Sections whose change takes effect with the next start."""
        first, now = self.first, self.served.document
        return [name for name in FIXED_SECTIONS if _fixed(getattr(first, name)) != _fixed(getattr(now, name))]

    @property
    def watch_plan(self) -> WatchPlan:
        """Watches what is served, and what was read last, should that not be served."""
        return self.served.watch | self._attempted

    async def open(self, config: LoadedConfig) -> None:
        """Compile what the files say and the sources know, and hold it as the first catalog.

        Raises:
            ConfigError: the files cannot be served; it has every problem.
        """
        self.redactor.replace(config.redactor)
        if not config.start_problems().has_errors:  # a file that is refused starts no program
            await self._follow_all(config.document)
        first = partial(self._compile_first, config)
        del config
        self.served = await self._thread.run(_with_gc_paused, first, deadline=math.inf)
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
        """Load and compile what is on disk now, in the thread; then start the plugins that come into use with it.

        Raises:
            ConfigError: it cannot be served; it has every problem.
        """
        job = partial(self._load_and_compile, generation=self.store.current.generation + 1, served=self.served)
        try:
            candidate: Candidate = await self._thread.run(_with_gc_paused, job, deadline=math.inf)
            await self._plugins.start(self._services.hook_threads)
        except ConfigError as error:
            self._prepared = None
            self._audit.refuse(error)
            raise
        return candidate

    async def read_again(self, look: Callable[[LoadedConfig], T]) -> T:
        """Read the definitions beside what is served, for those who show how they are written, and serve none of them.

        `look` is called in the thread.

        Raises:
            ConfigError: nothing could be read.
        """

        def read() -> T:
            return look(self._load())

        return await self._thread.run(_with_gc_paused, read, deadline=math.inf)

    def load(self) -> LoadedConfig:
        """Read the definitions, beside what is served; blocking.

        Raises:
            ConfigError: nothing could be read.
        """
        forget_sandboxes()  # the machine may allow them now, or no longer
        loaded = self._load()
        self.redactor.replace(self.served.catalog.redactor | loaded.redactor)
        return loaded

    def _load(self) -> LoadedConfig:
        """Read the files and merge the sources. Names keep their owners unless the lock has changed."""
        served, config = self.served, load(self._path)
        lock = read_lock(config.root)
        owners = served.owners if lock == served.lock else NO_OWNERS
        return merge(config, self._sources, owners={**owners, **locked_owners(config, lock.pins)})

    def compile(self, loaded: LoadedConfig, *, generation: int, served: Candidate | None) -> Candidate:
        """Make ready to serve what was loaded; blocking. Whatever comes of it, what to watch is known afterwards.

        Raises:
            ConfigError: it cannot be served; it has every problem.
        """
        dependencies = FileDependencies() if served is None else FileDependencies(served_roots=served.roots)
        try:
            config, identity = with_identity(loaded, dependencies=dependencies)
            lock = read_lock(config.root)
            compiled = compile_catalog(
                config,
                services=self._services,
                plugins=self._plugins,
                generation=generation,
                dependencies=dependencies,
                lock=lock,
                checks=(*CHECKS, check_still_closed) if self._must_stay_closed(served) else CHECKS,
            )
        finally:
            self._attempted = watch_loaded(loaded) | watch_dependencies(loaded.root, dependencies)
        earlier = None if served is None else served.catalog
        catalog = keep_locked(compiled, served=earlier, locked=lock.pins or {}, document=config.document)
        known = frozenset[Problem]() if earlier is None else frozenset(earlier.warnings)
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
            keeps_earlier=catalog is not compiled,
            owners=config.owners,
            exposures=exposures(config),
            places=definition_places(config) if self._keeps_places else NO_PLACES,
            audit_place=config.sources.locate(("audit", "file")),
            news=tuple(problem for problem in catalog.warnings if problem not in known),
        )
        if served is not None:
            self._audit.check(candidate)
            self._prepared = self.store.prepare(candidate.catalog)
        return candidate

    def swap(self, candidate: Candidate) -> None:
        """Serve this from now on: every call that begins later sees it."""
        self._authenticator.configure(candidate.document.auth, views=candidate.document.views)
        self.served = candidate
        self.store.swap(candidate.catalog, prepared=self._prepared)
        self._prepared = None
        if self.tls is not None and candidate.identity is not None:
            self.tls.show(candidate.identity)
        if not candidate.keeps_earlier:  # a kept definition may use plugin code that nothing else uses
            self._unload_plugins()
        self._follow(candidate.document)

    def announce(self) -> None:
        """Tell those who listen on, and those who keep records, what is served now."""
        served = self.served
        self.store.announce()
        self._audit.serve(served)
        log.info("reloaded", generation=self.store.current.generation, tools=len(served.catalog.tools))
        if self.restart_required:
            log.warning("restart required", sections=self.restart_required)
        if served.news:
            self._background.begin(self._thread.run(_report, served.news, deadline=math.inf), name="report warnings")

    def _compile_first(self, config: LoadedConfig) -> Candidate:
        owners = locked_owners(config, read_lock(config.root).pins)
        return self.compile(merge(config, self._sources, owners=owners), generation=1, served=None)

    def _load_and_compile(self, *, generation: int, served: Candidate) -> Candidate:
        return self.compile(self.load(), generation=generation, served=served)

    def _must_stay_closed(self, served: Candidate | None) -> bool:
        return served is not None and served.document.auth is not None and self._is_exposed(self.first.listen)

    def _unload_plugins(self) -> None:
        """Unload modules that are no longer used, once calls that may still be in them had their time."""
        unused = self._plugins.unload_unused()
        if unused:
            self._background.begin(self._shut_down_plugins(unused), name="plugin shutdown")

    async def _shut_down_plugins(self, modules: list[ModuleType]) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(self._grace):
                await self._is_closing.wait()
        await self._plugins.shut_down(modules, self._services.hook_threads)

    def _follow(self, document: Document) -> None:
        """Have the sources follow this document; they need not get through with the one before."""
        if not self._sources:
            return
        if self._following is not None:
            self._following.cancel()
        self._following = self._background.begin(self._follow_all(document), name="follow the sources of definitions")

    async def _follow_all(self, document: Document) -> None:
        await asyncio.gather(*(each.follow(document, self.source_changed.set) for each in self._sources))


def _with_gc_paused(job: Callable[[], T]) -> T:
    with gc_paused():
        return job()


def _fixed(section: Listen | Limits) -> Model:
    """The part that only a start takes up: each call looks up some limits, each handshake the certificate."""
    if isinstance(section, Limits):
        return section.model_copy(update=dict.fromkeys(LOOKED_UP))
    return section.model_copy(update={"tls": section.tls is not None})


def _report(warnings: Iterable[Problem]) -> None:
    for problem in warnings:
        log.warning("doubtful configuration", problem=str(problem))


def with_identity(
    loaded: LoadedConfig, *, dependencies: FileDependencies
) -> tuple[LoadedConfig, ServerIdentity | None]:
    """Load the files that `listen.tls` names; the configuration is returned with the problems found in them."""
    tls = loaded.document.listen.tls
    if tls is None:
        return loaded, None
    problems = loaded.start_problems()
    place = problems.at("listen", "tls")
    # Before they are read: what is missing or no good is watched, too, and loaded once it is mended.
    dependencies.files.update(identity_files(tls, place))
    identity = load_identity(tls, place)
    return replace(loaded, problems=tuple(problems)), identity
