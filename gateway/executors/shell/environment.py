"""Builds the environment of a child: a few of the daemon's variables, and those of the file."""

import os
from collections.abc import Mapping
from typing import Final

import msgspec

from gateway.errors import ExecutionError
from gateway.json_types import JsonObject
from gateway.language.scope import Scope
from gateway.language.templates.templating import TextTemplate, compile_text
from gateway.telemetry.trace import TraceContext

INHERITED: Final = frozenset({"PATH", "HOME", "LANG", "TZ", "TMPDIR"})
"""Names that every child inherits, beside LC_*."""
_MAX_ENTRY_LENGTH: Final = 128 * 1024 - 1
"""Bytes of `NAME=value`: MAX_ARG_STRLEN of Linux, which counts the NUL at the end (execve(2))."""


def inherited_environment(names: tuple[str, ...]) -> Mapping[str, str]:
    """Return what of the daemon's environment a child gets."""
    wanted = INHERITED.union(names)
    return {name: os.environ[name] for name in os.environ if name in wanted or name.startswith("LC_")}


class Environment(msgspec.Struct, frozen=True, kw_only=True):
    """A compiled `env:` and `inherit_env:`."""

    inherited: Mapping[str, str]
    added: Mapping[str, TextTemplate]

    def build(self, variables: JsonObject, *, trace: TraceContext | None) -> dict[str, str]:
        """Return the environment; an entry that has something absent in it is left out.

        Raises:
            ExecutionError: a value cannot stand in an environment.
        """
        environment = dict(self.inherited)
        if trace is not None:
            # OpenTelemetry, "Environment Variables as Context Propagation Carriers": TRACEPARENT and TRACESTATE.
            environment |= {name.upper(): value for name, value in trace.fields.items()}
        for name, template in self.added.items():
            value = template.render_element(variables)
            if value is None:
                continue
            if not fits(name, value):
                raise ExecutionError(f"the environment variable {name} would hold a NUL character, or over 128 KiB")
            environment[name] = value
        return environment


def compile_environment(added: Mapping[str, str], *, inherit: tuple[str, ...], scope: Scope) -> Environment:
    """Compile `env:`, at whose place `scope` looks; mistakes are reported."""
    for name in added:
        if not name or "=" in name or "\0" in name:
            scope.at(name).problems.error("the name of an environment variable is not empty, and has no `=`")
    return Environment(
        inherited=inherited_environment(inherit),
        added={name: compile_text(value, scope.at(name)) for name, value in added.items()},
    )


def fits(name: str, value: str) -> bool:
    """Whether a variable can be passed: it holds no NUL character, and is not too long."""
    return "\0" not in value and len(name) + 1 + len(value.encode(errors="surrogatepass")) <= _MAX_ENTRY_LENGTH
