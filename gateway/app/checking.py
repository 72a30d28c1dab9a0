"""Say whether a file could be served, without serving it."""

from collections.abc import Sequence

from gateway.app.rehearsal import rehearsed
from gateway.app.second_opinion import second_opinions
from gateway.config.settings import Settings
from gateway.errors import Problem


def check(settings: Settings) -> Sequence[Problem]:
    """Load and compile the file, and return its warnings.

    Raises:
        ConfigError: it cannot be served; it has every problem, warnings too.
    """
    with rehearsed(settings) as rehearsal:
        return (*rehearsal.catalog.warnings, *second_opinions(rehearsal.catalog))
