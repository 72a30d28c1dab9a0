"""The script of a `shell:` backend: each call's inputs are variables, and never a part of its text.

A script is written to a file in a directory that belongs to the call alone, and its interpreter is given the path:
standard input stays free, there is no limit of length, and every interpreter can do it.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Final

import msgspec

from gateway.config.diagnostics.problems import Problems
from gateway.config.machine_facts import program_path
from gateway.config.models.backends import Shell
from gateway.errors import ExecutionError
from gateway.executors.shell.environment import fits
from gateway.executors.shell.script_lints import warn_of_variables
from gateway.json_types import JsonObject
from gateway.language.scope import Scope
from gateway.language.templates.render_state import json_of, text_of

MAX_JSON_LENGTH: Final = 96 * 1024
"""Bytes of `INPUTS_JSON`; above that there is the file alone."""


class ShellScript(msgspec.Struct, frozen=True, kw_only=True):
    """A compiled `script:`."""

    text: str
    interpreter: Sequence[str]
    variables: Mapping[str, str]
    """The variable of each input that the file lists, `INPUT_<NAME>`."""
    mentioned: frozenset[str]
    """Variables that stand in the text."""

    def write(
        self, arguments: JsonObject, environment: Mapping[str, str], folder: Path
    ) -> tuple[list[str], dict[str, str]]:
        """Write it and its inputs; return its command line, and the environment beneath the one that is given.

        Raises:
            ExecutionError: the arguments cannot be passed.
        """
        everything = json_of(arguments)
        inputs = self._inputs(arguments, everything)
        script, inputs_file = folder / "script", folder / "inputs.json"
        try:
            _write_privately(script, self.text)
            _write_privately(inputs_file, everything)
        except OSError as error:
            raise ExecutionError(f"the script's inputs cannot be written: {error.strerror}") from error
        # `environment` last: no input replaces a variable that the file sets.
        return [*self.interpreter, str(script)], {**inputs, "INPUTS_FILE": str(inputs_file), **environment}

    def _inputs(self, arguments: JsonObject, everything: str) -> dict[str, str]:
        """Return the variables. One that cannot be passed is left out, unless the script asks for it.

        Raises:
            ExecutionError: the script asks for it. To the script it would be empty, as though it were not given.
        """
        inputs = {}
        for variable, value in self._each(arguments):
            if fits(variable, value):
                inputs[variable] = value
            elif variable in self.mentioned:
                raise ExecutionError(
                    f"{variable} would hold a NUL character, or over 128 KiB; `stdin` and INPUTS_FILE can take that"
                )
        if len(everything.encode(errors="surrogatepass")) <= MAX_JSON_LENGTH:
            inputs["INPUTS_JSON"] = everything
        return inputs

    def _each(self, arguments: JsonObject) -> Iterator[tuple[str, str]]:
        listed = set(self.variables.values())
        for name, value in arguments.items():
            variable = self.variables.get(name, _variable_of(name))
            if value is None or (name not in self.variables and variable in listed):
                continue  # a name that the file does not list never stands in for one that it does
            yield variable, text_of(value)


def compile_script(config: Shell, scope: Scope) -> ShellScript:
    """Compile the script of a `shell:`, at whose place `scope` looks; mistakes are reported."""
    text, problems = config.script or "", scope.problems.at("script")
    if "{{" in text:
        problems.warning("a script is not a template: `{{` stays as it is, and inputs are variables: $INPUT_NAME")
    if (filled_in_elsewhere := re.search(r"\$\{(env|file):[^}]*\}", text)) is not None:
        what = filled_in_elsewhere[0]
        problems.warning(f"`{what}` is the shell's own in a script; set a variable under `env` and use that")
    variables = {name: _variable_of(name) for name in scope.inputs.schemas}
    first: dict[str, str] = {}
    for name, variable in variables.items():
        if first.setdefault(variable, name) != name:
            problems.error(f"the inputs `{first[variable]}` and `{name}` would both be {variable}; rename one")
    scope.use_all()
    mentioned = frozenset(re.findall("INPUT_[A-Z0-9_]+", text))
    interpreter = _interpreter(config, problems)
    environment = {*config.env, *config.inherit_env}
    warn_of_variables(text, interpreter, variables, environment=environment, scope=scope.at("script"))
    return ShellScript(text=text, interpreter=interpreter, variables=variables, mentioned=mentioned)


def _interpreter(config: Shell, problems: Problems) -> Sequence[str]:
    """The command that runs the script: as written, else as its first line says, which is read as Linux does."""
    first_line = (config.script or "").partition("\n")[0]
    if "interpreter" in config.model_fields_set or not first_line.startswith("#!"):
        return config.interpreter
    # execve(2): whatever follows the program is one argument; env(1) splits it itself, after -S.
    words = first_line[2:].strip().split(maxsplit=1)
    program = PurePosixPath(words[0]).name if words else ""
    if program == "env" and len(words) > 1:
        program = next((word for word in words[1].split() if word[0] != "-" and "=" not in word), "")
    if not program or (program == "sh" and words[-1] in {words[0], "sh"}):
        return config.interpreter
    named = program if PurePosixPath(words[0]).name == "env" else words[0]
    is_relative = "/" in named and not named.startswith("/")
    if not is_relative and "PATH" not in config.env and program_path(named) is None:
        problems.warning(f"its first line names the interpreter `{named}`, which is not found here")
    return words


def _variable_of(name: str) -> str:
    # POSIX.1-2017 XBD 8.1: upper-case letters, digits and `_`. A shell cannot name what has a `-` or a `.`.
    return "INPUT_" + re.sub("[^A-Z0-9]", "_", name.upper())


def _write_privately(path: Path, text: str) -> None:
    # Made with its mode before anything is in it.
    path.touch(mode=0o600)
    path.write_bytes(text.encode(errors="surrogatepass"))
