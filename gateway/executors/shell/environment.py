import os
from collections.abc import Callable, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Final

from gateway.errors import ExecutionError
from gateway.json_types import JsonObject
from gateway.language.scope import Scope
from gateway.language.templates.templating import compile_text
from gateway.telemetry.trace import TraceContext

INHERITED: Final = frozenset({"PATH", "HOME", "LANG", "TZ", "TMPDIR"})
"""Variables that every child process inherits, in addition to `LC_*`."""
_MAX_ENTRY_LENGTH: Final = 128 * 1024 - 1
"""The limit in bytes for `NAME=value`. MAX_ARG_STRLEN of Linux includes the trailing NUL (execve(2))."""


def inherited_environment(names: tuple[str, ...]) -> Mapping[str, str]:
    wanted = INHERITED.union(names)
    return _shared(tuple(each for each in os.environ.items() if each[0] in wanted or each[0].startswith("LC_")))


@lru_cache(maxsize=16)
def _shared(entries: tuple[tuple[str, str], ...]) -> Mapping[str, str]:
    """Return the same mapping for equal entries, because most tools inherit the same variables."""
    return MappingProxyType(dict(entries))


EnvironmentTemplate = Callable[[JsonObject, TraceContext | None], dict[str, str]]
"""Returns the environment of a call. Raises `ExecutionError` for a value that is too long or contains NUL."""


def compile_environment(added: Mapping[str, str], *, inherit: tuple[str, ...], scope: Scope) -> EnvironmentTemplate:
    for name in added:
        if not name or "=" in name or "\0" in name:
            scope.at(name).problems.error("the name of an environment variable must not be empty or contain `=`")
    inherited = inherited_environment(inherit)
    templates = {name: compile_text(value, scope.at(name)) for name, value in added.items()}

    def environment(variables: JsonObject, trace: TraceContext | None) -> dict[str, str]:
        # Trace context: OpenTelemetry "Environment Variables as Context Propagation Carriers".
        fields = {} if trace is None else {name.upper(): value for name, value in trace.fields.items()}
        found = {**inherited, **fields}
        for name, template in templates.items():
            value = template.render_element(variables)
            if value is None:  # absent
                continue
            if not fits(name, value):
                raise ExecutionError(f"the environment variable {name} contains a NUL character or exceeds 128 KiB")
            found[name] = value
        return found

    return environment


def fits(name: str, value: str) -> bool:
    """Return whether the variable is short enough and contains no NUL character."""
    return "\0" not in value and len(name) + 1 + len(value.encode(errors="surrogatepass")) <= _MAX_ENTRY_LENGTH
