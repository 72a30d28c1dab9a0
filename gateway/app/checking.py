"""Say whether a file could be served, without serving it."""

from collections.abc import Sequence

from gateway.app.second_opinion import second_opinions
from gateway.catalog.compiler import compile_catalog
from gateway.catalog.plugins import Plugins
from gateway.config.loader import load
from gateway.config.settings import Settings
from gateway.errors import Problem
from gateway.executors.cache import ResponseCache
from gateway.executors.http.clients import HttpClients
from gateway.executors.output.parking import ParkedOutputs
from gateway.executors.services import Services
from gateway.executors.shell.processes import Processes
from gateway.executors.threads import Threads


def check(settings: Settings) -> Sequence[Problem]:
    """Load and compile the file, and return its warnings.

    Raises:
        ConfigError: it cannot be served; it has every problem, warnings too.
    """
    loaded = load(settings.config)
    plugins = Plugins()
    try:
        catalog = compile_catalog(loaded, services=_at_rest(), plugins=plugins, generation=1)
        return (*catalog.warnings, *second_opinions(catalog))
    finally:
        plugins.close()


def _at_rest() -> Services:
    """Services that were never started: executors are built around them and not run."""
    return Services(
        processes=Processes(), http=HttpClients(), threads=Threads(1), cache=ResponseCache(), parked=ParkedOutputs()
    )
