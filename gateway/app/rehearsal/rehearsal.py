"""A file made ready as though it were served, for commands that only look at it, or try it without a listener."""

import secrets
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from typing import Final

from gateway.app.listening.listener_identity import with_identity
from gateway.app.offer import CHECKS
from gateway.app.reports.picture import Picture, draw
from gateway.catalog.compiler import Check, compile_catalog
from gateway.catalog.footprint import Footprint
from gateway.catalog.lock import read_lock
from gateway.catalog.plugins.plugins import Plugins
from gateway.catalog.primitives import Catalog
from gateway.catalog.store import CatalogStore
from gateway.config.loader import LoadedConfig, load
from gateway.config.secrets import Redactor
from gateway.config.settings import Settings
from gateway.executors.cache import ResponseCache
from gateway.executors.http.clients import HttpClients
from gateway.executors.output.parking import ParkedOutputs
from gateway.executors.services import Services, running_services
from gateway.executors.shell.processes import Processes
from gateway.executors.threads import Threads
from gateway.json_types import JsonObject
from gateway.protocol.dispatcher import Dispatcher
from gateway.telemetry.logs import Logs
from gateway.transports.memory import MemoryClient

_KEY_BYTES: Final = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Rehearsal:
    """What a file says, what would be served, and what it would be served with."""

    loaded: LoadedConfig
    catalog: Catalog
    services: Services

    def client(self, offered: Catalog, *, capabilities: JsonObject) -> MemoryClient:
        """A client of the newest revision, and a dispatcher of its own, which offers it that catalog."""
        dispatcher = Dispatcher(
            store=CatalogStore(offered), services=self.services, secret_key=secrets.token_bytes(_KEY_BYTES)
        )
        return MemoryClient(dispatcher, capabilities=capabilities)


@contextmanager
def rehearsed(settings: Settings, *, heeds_lock: bool = True, checks: Sequence[Check] = ()) -> Iterator[Rehearsal]:
    """Load and compile the file, or the directory of files; nothing of it can run, and plugins are only imported.

    What is not as it was locked is told of, unless the lock is not heeded; it is left out in no case. What `checks`
    find joins the report.

    Raises:
        ConfigError: it cannot be served; it has every problem, warnings too.
    """
    plugins = Plugins()
    with _loaded(settings) as loaded:
        try:
            yield _compiled(loaded, _at_rest(), plugins, heeds_lock=heeds_lock, checks=checks)
        finally:
            plugins.close()


def picture_of(settings: Settings) -> Picture:
    """A picture of what the file would offer.

    Raises:
        ConfigError: it cannot be served; it has every problem, warnings too.
    """
    with rehearsed(settings) as rehearsal:
        return draw(rehearsal.loaded.document, rehearsal.catalog)


@asynccontextmanager
async def rehearsed_for_real(settings: Settings) -> AsyncIterator[Rehearsal]:
    """Load, compile and start, so that calls can be made.

    Raises:
        ConfigError: it cannot be served; it has every problem, warnings too.
    """
    plugins = Plugins()
    with _loaded(settings) as loaded:
        async with running_services(threads=loaded.document.limits.threads) as services:
            try:
                rehearsal = _compiled(loaded, services, plugins, heeds_lock=False)
                await plugins.start(services.threads)
                yield rehearsal
            finally:
                await plugins.stop(services.threads)


@contextmanager
def _loaded(settings: Settings) -> Iterator[LoadedConfig]:
    """What the file says, and logging that masks its secrets."""
    redactors: list[Redactor] = []

    def mask(text: str) -> str:
        return redactors[0].text(text) if redactors else text

    with Logs(level=settings.log_level, style=settings.log_format, mask=mask):
        loaded, _ = with_identity(load(settings.config), footprint=Footprint())
        redactors.append(loaded.redactor)
        yield loaded


def _compiled(
    loaded: LoadedConfig, services: Services, plugins: Plugins, *, heeds_lock: bool, checks: Sequence[Check] = ()
) -> Rehearsal:
    lock = replace(read_lock(loaded.root), withholds=False) if heeds_lock else None
    catalog = compile_catalog(
        loaded, services=services, plugins=plugins, generation=1, lock=lock, checks=(*CHECKS, *checks)
    )
    return Rehearsal(loaded=loaded, catalog=catalog, services=services)


def _at_rest() -> Services:
    """Services that were never started: executors are built around them."""
    return Services(
        processes=Processes(), http=HttpClients(), threads=Threads(1), cache=ResponseCache(), parked=ParkedOutputs()
    )
