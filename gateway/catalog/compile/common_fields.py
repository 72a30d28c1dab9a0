"""Compiles the fields that all primitives share: access, names and call limits."""

from datetime import timedelta
from typing import Any, Final

from gateway.catalog.compile.backends import BACKENDS, connection_of
from gateway.catalog.compile.context import CompileContext
from gateway.catalog.compile.relayed import relayed_of
from gateway.config.models.backends import Connection
from gateway.config.models.definition_keys import ASK_TIMEOUT
from gateway.config.models.definitions import Prompt, Resource, Tool, trait_of
from gateway.json_types import empty
from gateway.language.scope import Inputs, Scope
from gateway.language.templates.templating import TextTemplate, compile_text
from gateway.plugin import ListKind

_TIMEOUT: Final = timedelta(seconds=60)
_CONCURRENCY: Final = 16
_QUEUE: Final = 64
_NO_FACTS: Final[frozenset[str]] = frozenset()


def common_fields(
    kind: ListKind, name: str, config: Tool | Resource | Prompt, *, scope: Scope, context: CompileContext
) -> dict[str, Any]:
    """Return the constructor arguments that all primitives share.

    Compile the definition's templates before this call, because the templates record in `scope` which attributes of the
    caller they use. Each limit comes from the definition, its backend, the file's defaults, or the built-in defaults.
    """
    defaults = context.defaults
    return {
        "name": name,
        "access": context.access_to(kind, name),
        "aliases": tuple(config.aliases),
        "tags": tuple(config.tags),
        "upstream": "" if (relayed := relayed_of(config)) is None else relayed.server,
        "required_capabilities": {name: {} for name in config.requires.client} if config.requires.client else empty(),
        "timeout": _timeout_of(config, connection_of(config, context=context), default=defaults.timeout or _TIMEOUT),
        "concurrency": config.concurrency or defaults.concurrency or _CONCURRENCY,
        "ask_timeout": getattr(config, "ask_timeout", None) or defaults.ask_timeout or ASK_TIMEOUT,
        # Do not use `or`, because a queue length of 0 is valid.
        "queue": next(queue for queue in (config.queue, defaults.queue, _QUEUE) if queue is not None),
        "rate_limit": defaults.rate_limit if config.rate_limit is None else config.rate_limit,
        "rate_key": _rate_key(config, scope=scope, context=context),
        "caller_facts": frozenset(scope.caller_facts) or _NO_FACTS,
    }


def _rate_key(config: Tool | Resource | Prompt, *, scope: Scope, context: CompileContext) -> TextTemplate | None:
    """Compile the key of the rate limit. The key cannot use inputs, because calls are counted before validation."""
    limit = context.defaults.rate_limit if config.rate_limit is None else config.rate_limit
    if limit is None or limit.key is None:
        return None
    problems = scope.problems.root.at("defaults") if config.rate_limit is None else scope.problems
    return compile_text(limit.key, context.scope(Inputs(), problems.at("rate_limit", "key")))


def _timeout_of(config: Tool | Resource | Prompt, connection: Connection | None, *, default: timedelta) -> timedelta:
    own: timedelta | None = trait_of(config, "timeout")
    row = BACKENDS.get(config.backend)
    if row is not None and row.timeout_bounds == "attempt":
        attempt = own or (connection.timeout if connection is not None else None)
        return config.timeout or max(default, attempt or default)  # a call must have time for at least one attempt
    return min((timeout for timeout in (config.timeout, own) if timeout is not None), default=default)
