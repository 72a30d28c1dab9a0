"""Say whether a file could be served, without serving it."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from gateway.app.audit_file import check_audit_file
from gateway.app.listening.exposure import exposures
from gateway.app.rehearsal.rehearsal import rehearsed
from gateway.app.rehearsal.second_opinion import second_opinions
from gateway.app.rehearsal.testing import check_test_files
from gateway.config.loader import LoadedConfig
from gateway.config.settings import Settings
from gateway.errors import Problem, Severity


def check(settings: Settings, *, tell: Callable[[str], None] = lambda _: None) -> Sequence[Problem]:
    """Load and compile the file, tell of what is right and yet not on offer on this machine, and return its warnings.

    Raises:
        ConfigError: it cannot be served; it has every problem, warnings too.
    """
    with rehearsed(settings, checks=(check_audit_file, check_test_files)) as rehearsal:
        for each in rehearsal.catalog.left_out:
            tell(str(each))
        doubts = _exposures(rehearsal.loaded, settings)
        return (*rehearsal.catalog.warnings, *doubts, *second_opinions(rehearsal.catalog))


def _exposures(loaded: LoadedConfig, settings: Settings) -> list[Problem]:
    """What a start would refuse, unless it is told otherwise or told another address."""
    if settings.allow_anonymous or not settings.serves_http:
        return []
    overruled = set() if settings.http is None else {"listen.http"}
    return [
        replace(problem, severity=Severity.WARNING)
        for key, problem in exposures(loaded).items()
        if key not in overruled
    ]
