"""What is on offer, from the files on disk to the catalog in the store, and how the one follows the other.

`build` does everything that can fail and touches nothing that is served; `serve` cannot fail. Both run one after the
other, never two at once: the reloader sees to that.
"""

import asyncio
import hashlib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Final

import structlog

from gateway.access.authenticator import check_auth
from gateway.app.audit_file import check_audit_is_apart
from gateway.app.listening.exposure import check_still_closed, exposures
from gateway.app.listening.listener_identity import with_identity
from gateway.app.process.pauses import collections_put_off
from gateway.catalog.compiler import Check, compile_catalog
from gateway.catalog.footprint import Footprint
from gateway.catalog.lock import LOCK_NAME, Lock, read_lock
from gateway.catalog.plugins.plugins import Plugins
from gateway.catalog.primitives import Catalog
from gateway.catalog.retention import retained
from gateway.catalog.store import CatalogStore
from gateway.config.base import Model
from gateway.config.document import Document
from gateway.config.loader import LoadedConfig, load
from gateway.config.secrets import Redactor
from gateway.config.server import Limits, Listen
from gateway.errors import Location, Problem
from gateway.executors.services import Services
from gateway.executors.threads import Threads
from gateway.reloader.watch_plan import WatchPlan
from gateway.transports.listener.server_tls import ServerIdentity, ServerTls

log: Final = structlog.get_logger()

FIXED_SECTIONS: Final = ("listen", "limits")
"""Sections of the file that only a start of the process takes up."""

CHECKS: Final = (check_auth, check_audit_is_apart)
"""Of what is in the file and no part of the catalog, by whoever compiles it."""

LOOKED_UP: Final = ("rate_limit", "concurrency", "queue", "sampling")
"""Keys of `limits` that each call looks up, so that a reload changes them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Build:
    """A whole new offer, ready to be served. Does not keep all that was loaded: where each word stood is large."""

    document: Document
    root: Path
    """The directory of the main file."""
    files: Mapping[Path, str]
    """Every file that was read, and every directory of plugins → SHA-256 (keyed for secrets)."""
    digest: str
    """One for all of them but the secrets: the same in every process that serves the same."""
    catalog: Catalog
    identity: ServerIdentity | None
    """What the listener shows, where `listen.tls` has it speak TLS."""
    plan: WatchPlan
    lock: Lock
    retains: bool
    """Whether something of an earlier offer is served still, since the lock has it so."""
    exposures: Mapping[str, Problem]
    """The keys that name addresses which it must not be served on, and why."""
    audit_place: tuple[Location | None, str]
    """Where the audit log's file is named, and that line: whether it can be written shows when it is opened."""


class Offer:
    """The files, and what is served from them."""

    def __init__(
        self,
        path: Path,
        *,
        redactor: Redactor,
        services: Services,
        grace: timedelta,
        is_reachable: Callable[[], bool] = lambda: False,
    ) -> None:
        """Do nothing yet.

        Args:
            path: the file, or the directory of files.
            redactor: masks the secrets of the files until they are read again.
            services: what executors borrow.
            grace: how long calls that began before a reload may use the plugin code that it replaced.
            is_reachable: whether anybody beyond this machine can reach what is served.
        """
        self._path: Final = path
        self._grace: Final = grace.total_seconds()
        self._is_reachable: Final = is_reachable
        self._services: Final = services
        self._plugins: Final = Plugins()
        # Loading has a thread of its own: calls may not delay it, nor a plugin that hangs at import hold the exit.
        self._thread: Final = Threads(1)
        self._attempted = WatchPlan()
        """What to watch for the sake of what was read last, should that not be served."""
        self._farewells: Final[set[asyncio.Task[None]]] = set()
        self._is_closing: Final = asyncio.Event()
        self.redactor = redactor
        """Masks the secrets of the files as they were last read, even if they are not served."""
        self.served: Build
        self.store: CatalogStore
        self.first: Document
        """What was there at the start, by which the fixed sections are as they are."""
        self.tls: ServerTls | None = None
        """Shows the certificate as it was last read whole and sound."""

    @property
    def restart_required(self) -> list[str]:
        """Sections whose change takes effect with the next start."""
        first, now = self.first, self.served.document
        return [name for name in FIXED_SECTIONS if _fixed(getattr(first, name)) != _fixed(getattr(now, name))]

    async def open(self, loaded: LoadedConfig) -> None:
        """Compile and hold the first catalog.

        Raises:
            ConfigError: the files cannot be served; it has every problem.
        """
        self.served = await self._compile(loaded, generation=1, served=None)
        self.first = self.served.document
        self.tls = None if self.served.identity is None else ServerTls(self.served.identity)
        self.store = CatalogStore(self.served.catalog)
        self._retire()
        _report(self.served.catalog.warnings)

    async def close(self) -> None:
        self._is_closing.set()
        await asyncio.gather(*self._farewells, return_exceptions=True)
        await self._plugins.stop(self._services.threads)
        await self._thread.stop()

    async def build(self) -> Build:
        """Read and compile what is on disk now.

        Raises:
            ConfigError: it cannot be served; it has every problem.
        """
        generation, served = self.store.current.generation + 1, self.served.catalog
        with collections_put_off():  # what was loaded is gone at its end, and so looked through by nobody: no name here
            return await self._compile(await self._load(), generation=generation, served=served)

    async def serve(self, build: Build) -> None:
        """Let every call from now on see this build."""
        known = frozenset(self.served.catalog.warnings)
        self.served = build
        self.store.swap(build.catalog)
        if self.tls is not None and build.identity is not None:
            self.tls.show(build.identity)
        if not build.retains:  # what is retained may be the code of a plugin that nothing else uses
            self._retire()
        log.info("reloaded", generation=self.store.current.generation, tools=len(build.catalog.tools))
        _report(problem for problem in build.catalog.warnings if problem not in known)
        if self.restart_required:
            log.warning("restart required", sections=self.restart_required)

    def plan(self) -> WatchPlan:
        """What to watch: what is served, and what was read last, should that not be served."""
        return self.served.plan | self._attempted

    async def _load(self) -> LoadedConfig:
        loaded = await self._thread.run(load, self._path, deadline=math.inf)
        self.redactor = loaded.redactor
        return loaded

    async def _compile(self, loaded: LoadedConfig, *, generation: int, served: Catalog | None) -> Build:
        footprint = Footprint()
        try:
            loaded, identity = await self._thread.run(
                partial(with_identity, footprint=footprint), loaded, deadline=math.inf
            )
            lock = await self._thread.run(read_lock, loaded.root, deadline=math.inf)
            is_closed = served is not None and self.served.document.auth is not None and self._is_reachable()
            checks = (*CHECKS, check_still_closed) if is_closed else CHECKS
            compiled = partial(self._compiled, loaded, generation, footprint, lock, checks)
            catalog = await self._thread.run(compiled, deadline=math.inf)
            await self._plugins.start(self._services.threads)
        finally:
            self._attempted = plan = _plan(loaded, footprint)
        offered = retained(catalog, served=served, locked=lock.pins or {}, document=loaded.document)
        self.redactor = offered.redactor
        code = self._plugins.contents
        return Build(
            document=loaded.document,
            root=loaded.root,
            files={**loaded.files, **code},
            digest=_digest(loaded, code),
            catalog=offered,
            identity=identity,
            plan=plan,
            lock=lock,
            retains=offered is not catalog,
            exposures=exposures(loaded),
            audit_place=loaded.sources.locate(("audit", "file")),
        )

    def _compiled(
        self, loaded: LoadedConfig, generation: int, footprint: Footprint, lock: Lock, checks: Sequence[Check]
    ) -> Catalog:
        return compile_catalog(
            loaded,
            services=self._services,
            plugins=self._plugins,
            generation=generation,
            footprint=footprint,
            lock=lock,
            checks=checks,
        )

    def _retire(self) -> None:
        """Part with modules that the new offer does not use, once calls that may still be in them had their time."""
        unused = self._plugins.retire()
        if unused:
            farewell = asyncio.get_running_loop().create_task(self._say_farewell(unused), name="plugin shutdown")
            self._farewells.add(farewell)
            farewell.add_done_callback(self._farewells.discard)

    async def _say_farewell(self, modules: list[ModuleType]) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(self._grace):
                await self._is_closing.wait()
        await self._plugins.shut_down(modules, self._services.threads)


def _plan(loaded: LoadedConfig, footprint: Footprint) -> WatchPlan:
    return WatchPlan(
        files=frozenset({*loaded.files, *footprint.files, loaded.root / LOCK_NAME}),
        directories=loaded.directories,
        patterns=frozenset(loaded.globs),
        trees=frozenset({*loaded.trees, *footprint.trees}),
        globs=frozenset(footprint.globs),
        present=frozenset(
            {
                *(path for path, digest in loaded.files.items() if digest),
                *footprint.trees,
                *(Path(globs.root) for globs in footprint.globs),
            }
        ),
    )


def _digest(loaded: LoadedConfig, code: Mapping[Path, str]) -> str:
    """One hash for all, whatever they are called. A rotated secret changes nothing: its own digest has a random key."""
    written = [digest for path, digest in loaded.files.items() if path not in loaded.secret_files]
    return hashlib.sha256("".join([*written, *code.values()]).encode()).hexdigest()


def _fixed(section: Listen | Limits) -> Model:
    """What of a section only a start takes up: each call looks up some limits, each handshake its certificate."""
    if isinstance(section, Limits):
        return section.model_copy(update=dict.fromkeys(LOOKED_UP))
    return section.model_copy(update={"tls": section.tls is not None})


def _report(warnings: Iterable[Problem]) -> None:
    for problem in warnings:
        log.warning("doubtful configuration", problem=str(problem))
