"""A file made ready as though it were served, for commands that only look at it."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from gateway.catalog.compiler import compile_catalog
from gateway.catalog.plugins import Plugins
from gateway.catalog.primitives import Catalog
from gateway.config.loader import LoadedConfig, load
from gateway.config.secrets import Redactor
from gateway.config.settings import Settings
from gateway.executors.cache import ResponseCache
from gateway.executors.http.clients import HttpClients
from gateway.executors.output.parking import ParkedOutputs
from gateway.executors.services import Services
from gateway.executors.shell.processes import Processes
from gateway.executors.threads import Threads
from gateway.telemetry.logs import Logs


@dataclass(frozen=True, slots=True, kw_only=True)
class Rehearsal:
    """What a file says, and what would be served."""

    loaded: LoadedConfig
    catalog: Catalog
    services: Services
    """Never started: executors are built around them, and nothing can run by mistake."""


@contextmanager
def rehearsed(settings: Settings) -> Iterator[Rehearsal]:
    """Load and compile the file, or the directory of files. Plugins are imported, but their `startup` is not called.

    Raises:
        ConfigError: it cannot be served; it has every problem, warnings too.
    """
    redactors: list[Redactor] = []
    plugins = Plugins()
    with Logs(
        level=settings.log_level,
        style=settings.log_format,
        mask=lambda text: redactors[0].text(text) if redactors else text,
    ):
        loaded = load(settings.config)
        redactors.append(loaded.redactor)
        services = _at_rest()
        try:
            catalog = compile_catalog(loaded, services=services, plugins=plugins, generation=1)
            yield Rehearsal(loaded=loaded, catalog=catalog, services=services)
        finally:
            plugins.close()


def _at_rest() -> Services:
    return Services(
        processes=Processes(), http=HttpClients(), threads=Threads(1), cache=ResponseCache(), parked=ParkedOutputs()
    )
