"""What the compile steps of all definitions share, and the rules that hold for each of them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from gateway.catalog.access import Accesses
from gateway.catalog.footprint import Footprint
from gateway.catalog.plugins.plugins import Plugins
from gateway.catalog.primitives import EVERYBODY, Access
from gateway.config.backends import Connection
from gateway.config.definitions import Defaults
from gateway.config.primitives import Prompt, Resource, Tool
from gateway.config.problems import Problems
from gateway.config.rates import RateLimit
from gateway.config.secrets import Redactor
from gateway.errors import Severity
from gateway.executors.scope import Scope
from gateway.executors.services import Services
from gateway.plugin import ListKind

MAX_SIZE: Final = 10 * 2**20
"""Bytes of a resource, unless the file says otherwise; and what a tool's backend may bring."""

_TIMEOUT: Final = timedelta(seconds=60)
_CONCURRENCY: Final = 16
_ASK_TIMEOUT: Final = timedelta(minutes=10)
_QUEUE: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Workbench:
    services: Services
    plugins: Plugins
    unheard: Problems | None
    """Takes what is said of modules that are not found while a directory of `plugins:` is missing: that was said."""
    redactor: Redactor
    connections: Mapping[str, Connection]
    defaults: Defaults
    accesses: Accesses
    footprint: Footprint

    def access_to(self, kind: ListKind, name: str) -> Access:
        return self.accesses.get((kind, name), EVERYBODY)


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowance:
    """How long a call may take, how many may run at once, how many may wait, and how often one may begin."""

    timeout: timedelta
    concurrency: int
    queue: int
    rate_limit: RateLimit | None
    ask_timeout: timedelta


def allowance_of(config: Tool | Resource | Prompt, *, bench: Workbench) -> Allowance:
    """What the definition says, and its backend; then the file's defaults, then our own."""
    defaults = bench.defaults
    return Allowance(
        timeout=_timeout_of(config, default=defaults.timeout or _TIMEOUT),
        concurrency=config.concurrency or defaults.concurrency or _CONCURRENCY,
        ask_timeout=getattr(config, "ask_timeout", None) or defaults.ask_timeout or _ASK_TIMEOUT,
        queue=next(queue for queue in (config.queue, defaults.queue, _QUEUE) if queue is not None),
        rate_limit=defaults.rate_limit if config.rate_limit is None else config.rate_limit,
    )


def _timeout_of(config: Tool | Resource | Prompt, *, default: timedelta) -> timedelta:
    http, shell = (None, None) if isinstance(config, Prompt) else (config.http, config.shell)
    if http is not None:  # its own timeout is that of one attempt
        return config.timeout or max(default, http.timeout or default)
    backend = config.python or shell
    given = (config.timeout, None if backend is None else backend.timeout)
    return min((timeout for timeout in given if timeout is not None), default=default)


def warn_of_unused(scope: Scope, *, at: Callable[[str], tuple[str, ...]]) -> None:
    """Report inputs that nothing names: callers would be asked for them in vain. `at` is where each was written.

    Says nothing where a mistake was found: what it stands in could have named them.
    """
    if not is_sound(scope.problems):
        return
    for name in scope.inputs.schemas:
        if name not in scope.used:
            scope.problems.at(*at(name)).warning(f"`{name}` is used nowhere")


def is_sound(problems: Problems) -> bool:
    """Whether no error has been found at this place or below it, be it by the loader."""
    place, below = problems.path, f"{problems.path}."
    return not any(
        problem.severity is Severity.ERROR and (problem.path == place or problem.path.startswith(below))
        for problem in problems
    )
