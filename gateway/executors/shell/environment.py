import os
from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Final

import msgspec

from gateway.errors import ExecutionError
from gateway.json_types import JsonObject
from gateway.language.scope import Scope
from gateway.language.templates.templating import TextTemplate, compile_text
from gateway.telemetry.trace import TraceContext

INHERITED: Final = frozenset({"PATH", "HOME", "LANG", "TZ", "TMPDIR"})
"""Variables that every child inherits, in addition to LC_*."""
_MAX_ENTRY_LENGTH: Final = 128 * 1024 - 1
"""Bytes of `NAME=value`. MAX_ARG_STRLEN of Linux includes the trailing NUL (execve(2))."""


def inherited_environment(names: tuple[str, ...]) -> Mapping[str, str]:
    wanted = INHERITED.union(names)
    return _shared(tuple(each for each in os.environ.items() if each[0] in wanted or each[0].startswith("LC_")))


@lru_cache(maxsize=16)
def _shared(entries: tuple[tuple[str, str], ...]) -> Mapping[str, str]:
    """Return the same mapping for equal entries, which most tools have."""
    return MappingProxyType(dict(entries))


class Environment(msgspec.Struct, frozen=True, kw_only=True):
    inherited: Mapping[str, str]
    added: Mapping[str, TextTemplate]

    def build(self, variables: JsonObject, *, trace: TraceContext | None) -> dict[str, str]:
        """Return the environment. Variables with an absent value are omitted.

        Raises:
            ExecutionError: a value is too long or contains a NUL character.
        """
        environment = dict(self.inherited)
        if trace is not None:
            # OpenTelemetry "Environment Variables as Context Propagation Carriers".
            environment |= {name.upper(): value for name, value in trace.fields.items()}
        for name, template in self.added.items():
            value = template.render_element(variables)
            if value is None:
                continue
            if not fits(name, value):
                raise ExecutionError(f"the environment variable {name} contains a NUL character or exceeds 128 KiB")
            environment[name] = value
        return environment


def compile_environment(added: Mapping[str, str], *, inherit: tuple[str, ...], scope: Scope) -> Environment:
    for name in added:
        if not name or "=" in name or "\0" in name:
            scope.at(name).problems.error("the name of an environment variable must not be empty or contain `=`")
    return Environment(
        inherited=inherited_environment(inherit),
        added={name: compile_text(value, scope.at(name)) for name, value in added.items()},
    )


def fits(name: str, value: str) -> bool:
    """Return whether the variable is short enough and contains no NUL character."""
    return "\0" not in value and len(name) + 1 + len(value.encode(errors="surrogatepass")) <= _MAX_ENTRY_LENGTH
