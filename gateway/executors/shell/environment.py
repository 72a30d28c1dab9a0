"""Builds the environment of a child: a few of the daemon's variables, those of the file, and the inputs of a script."""

import os
import re
from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from gateway.config.machine_facts import machine_fact
from gateway.errors import ExecutionError
from gateway.json_types import JsonObject
from gateway.language.scope import Scope
from gateway.language.templates.render_state import json_of, text_of
from gateway.language.templates.templating import TextTemplate, compile_text
from gateway.telemetry.trace import TraceContext

INHERITED: Final = frozenset({"PATH", "HOME", "LANG", "TZ", "TMPDIR"})
"""Names that every child inherits, beside LC_*."""
MAX_JSON_LENGTH: Final = 96 * 1024
"""Bytes of `INPUTS_JSON`; above that there is the file alone."""
_MAX_ENTRY_LENGTH: Final = 128 * 1024 - 1
"""Bytes of `NAME=value`: MAX_ARG_STRLEN of Linux, which counts the NUL at the end (execve(2))."""


@machine_fact
def inherited_environment(names: tuple[str, ...]) -> Mapping[str, str]:
    """Return what of the daemon's environment a child gets; one mapping for all commands of a catalog."""
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
            if not _fits(name, value):
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


class InputVariables(msgspec.Struct, frozen=True, kw_only=True):
    """The variables that hold a script's inputs: `INPUT_<NAME>` for each, and `INPUTS_JSON` for all."""

    names: Mapping[str, str]
    """The variable of each input that the file lists."""
    mentioned: frozenset[str]
    """Variables that stand in the script."""

    def build(self, arguments: JsonObject) -> dict[str, str]:
        """Return the variables. One that cannot be passed is left out, unless the script asks for it.

        Raises:
            ExecutionError: the script asks for it. To the script it would be empty, as though it were not given.
        """
        variables = dict(self._each(arguments))
        for variable in [variable for variable, value in variables.items() if not _fits(variable, value)]:
            if variable in self.mentioned:
                raise ExecutionError(
                    f"{variable} would hold a NUL character, or over 128 KiB; `stdin` and INPUTS_FILE can take that"
                )
            del variables[variable]
        everything = json_of(arguments)
        if len(everything.encode(errors="surrogatepass")) <= MAX_JSON_LENGTH:
            variables["INPUTS_JSON"] = everything
        return variables

    def _each(self, arguments: JsonObject) -> Iterator[tuple[str, str]]:
        listed = set(self.names.values())
        for name, value in arguments.items():
            variable = self.names.get(name, variable_of(name))
            if value is None or (name not in self.names and variable in listed):
                continue  # a name that the file does not list never stands in for one that it does
            yield variable, text_of(value)


def compile_input_variables(script: str, scope: Scope) -> InputVariables:
    """Name the variables of a script, at whose place `scope` looks; a clash is reported."""
    names = {name: variable_of(name) for name in scope.inputs.schemas}
    first: dict[str, str] = {}
    for name, variable in names.items():
        if first.setdefault(variable, name) != name:
            scope.problems.error(f"the inputs `{first[variable]}` and `{name}` would both be {variable}; rename one")
    return InputVariables(
        names=names,
        mentioned=frozenset(re.findall("INPUT_[A-Z0-9_]+", script)),
    )


def variable_of(name: str) -> str:
    # POSIX.1-2017 XBD 8.1: upper-case letters, digits and `_`. A shell cannot name what has a `-` or a `.`.
    return "INPUT_" + re.sub("[^A-Z0-9]", "_", name.upper())


def _fits(name: str, value: str) -> bool:
    return "\0" not in value and len(name) + 1 + len(value.encode(errors="surrogatepass")) <= _MAX_ENTRY_LENGTH
