"""Compiles and writes scripts of `shell:` backends. Inputs are environment variables and never part of a script.

Scripts are written to files, which keeps standard input free, works with every interpreter and has no length limit.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path, PurePosixPath
from shutil import which
from typing import Final

import msgspec

from gateway.config.diagnostics.near_misses import nearest
from gateway.config.diagnostics.problems import Problems, TextOffset
from gateway.config.models.backends import Shell
from gateway.errors import ExecutionError
from gateway.executors.scratch import write_privately
from gateway.executors.shell.argv import fits
from gateway.json_types import Json, JsonObject
from gateway.language.scope import Scope
from gateway.language.templates.render_state import json_of, text_of

MAX_JSON_LENGTH: Final = 96 * 1024
"""The limit in bytes for INPUTS_JSON. Longer inputs are only in INPUTS_FILE."""


class ShellScript(msgspec.Struct, frozen=True, kw_only=True):
    text: str
    interpreter: Sequence[str]
    variables: Mapping[str, str]
    """Maps each declared input to an environment variable, `INPUT_<NAME>`."""
    mentioned: frozenset[str]

    def write(
        self, arguments: JsonObject, environment: Mapping[str, str], folder: Path
    ) -> tuple[list[str], dict[str, str]]:
        """Write the script and its inputs. Return the command line and the complete environment.

        Raises:
            ExecutionError: the arguments cannot be passed.
        """
        everything = json_of(arguments)
        inputs = self._inputs(arguments, everything)
        script, inputs_file = folder / "script", folder / "inputs.json"
        try:
            write_privately(script, self.text.encode(errors="surrogatepass"))
            write_privately(inputs_file, everything.encode(errors="surrogatepass"))
        except OSError as error:
            raise ExecutionError(f"cannot write the inputs of the script: {error.strerror}") from error
        # `environment` is last, so that inputs cannot replace variables set by the file.
        return [*self.interpreter, str(script)], {**inputs, "INPUTS_FILE": str(inputs_file), **environment}

    def _inputs(self, arguments: JsonObject, everything: str) -> dict[str, str]:
        """Return the environment variables of the inputs, without unused values that cannot be passed.

        Raises:
            ExecutionError: the script uses a value that cannot be passed.
        """
        inputs, declared = {}, set(self.variables.values())
        for name, value in arguments.items():
            variable = self.variables.get(name, _variable_of(name))
            if value is None or (name not in self.variables and variable in declared):
                continue  # an undeclared input must not replace a declared input
            if fits(variable, text := text_of(value)):
                inputs[variable] = text
            elif variable in self.mentioned:
                raise ExecutionError(
                    f"{variable} contains a NUL character or exceeds 128 KiB. Use `stdin` or INPUTS_FILE"
                )
        if len(everything.encode(errors="surrogatepass")) <= MAX_JSON_LENGTH:
            inputs["INPUTS_JSON"] = everything
        return inputs


def compile_script(config: Shell, scope: Scope) -> ShellScript:
    text, problems = config.script or "", scope.problems.at("script")
    if "{{" in text:
        problems.warning("a script is not a template, so `{{` is not replaced. Inputs are variables: $INPUT_NAME")
    if (interpolation := re.search(r"\$\{(env|file):[^}]*\}", text)) is not None:
        problems.warning(f"`{interpolation[0]}` is not interpolated in a script. Set a variable in `env` and use that")
    variables = {name: _variable_of(name) for name in scope.inputs.schemas}
    first: dict[str, str] = {}
    for name, variable in variables.items():
        if first.setdefault(variable, name) != name:
            problems.error(f"the inputs `{first[variable]}` and `{name}` would both be {variable}. Rename one")
    scope.use_all()
    mentioned = frozenset(re.findall("INPUT_[A-Z0-9_]+", text))
    interpreter = _interpreter(config, problems)
    environment = {*config.env, *config.inherit_env}
    warn_of_variables(text, interpreter, variables, environment=environment, scope=scope.at("script"))
    return ShellScript(text=text, interpreter=interpreter, variables=variables, mentioned=mentioned)


def _interpreter(config: Shell, problems: Problems) -> Sequence[str]:
    first_line = (config.script or "").partition("\n")[0]
    if "interpreter" in config.model_fields_set or not first_line.startswith("#!"):
        return config.interpreter
    # execve(2): everything after the program is one argument. With -S, env(1) splits this argument.
    words = first_line[2:].strip().split(maxsplit=1)
    program = PurePosixPath(words[0]).name if words else ""
    if program == "env" and len(words) > 1:
        program = next((word for word in words[1].split() if word[0] != "-" and "=" not in word), "")
    if not program or (program == "sh" and words[-1] in {words[0], "sh"}):
        return config.interpreter
    named = program if PurePosixPath(words[0]).name == "env" else words[0]
    is_relative = "/" in named and not named.startswith("/")
    if not is_relative and "PATH" not in config.env and which(named) is None:
        problems.warning(f"the interpreter `{named}` in its first line does not exist")
    return words


def _variable_of(name: str) -> str:
    # POSIX.1-2017 XBD 8.1: names consist of upper-case letters, digits and `_`.
    return "INPUT_" + re.sub("[^A-Z0-9]", "_", name.upper())


_PREFIX: Final = "INPUT_"
_SHELLS: Final = frozenset({"sh", "ash", "bash", "dash", "ksh"})
"""Shells that split unquoted values into words. zsh does not split unquoted values."""
_REFERENCE: Final = re.compile(r"\$\{?[#!]?(INPUT_[A-Z0-9_]+)")
_UNQUOTED: Final = re.compile(
    # Skips escapes, quoted strings, comments, `[[ … ]]` and the words of `case` and `for`, which are split on purpose.
    r"""\\.|'[^']*'|"(?:\\.|[^"\\])*"|(?<![^\s;])\#[^\n]*|(?:\[\[|\bcase|\bfor\s+\w+\s+in)\s[^\n;]*"""
    # `${X:+word}` expands to the word, and the value of an assignment is not split.
    r"|(?<![=\w])\$\{?(INPUT_[A-Z0-9_]++)(?!:?\+)",
    re.DOTALL,
)
_ONE_WORD: Final = re.compile(r"[\w./:@%+=,-]+")


def warn_of_variables(
    text: str, interpreter: Sequence[str], variables: Mapping[str, str], *, environment: Collection[str], scope: Scope
) -> None:
    """Warn about unknown and unquoted `$INPUT_…` variables in a script. `variables` maps input names to variables."""
    programs = [PurePosixPath(word).name for word in interpreter if not word.startswith("-")]
    if _SHELLS.isdisjoint(programs[:2]):
        return
    inputs = {variable: name for name, variable in variables.items()}
    for found in _REFERENCE.finditer(text):
        name = found[1]
        if name in inputs or scope.inputs.is_open or name in environment:
            continue
        if re.search(rf"(?<![\w${{#!]){name}\b", text) is None:  # the script does not set the variable itself
            meant = nearest(name.removeprefix(_PREFIX), [each.removeprefix(_PREFIX) for each in inputs])
            hint = f"; did you mean `${_PREFIX}{meant}`?" if meant else ""
            scope.problems.at(TextOffset(found.start())).warning(f"`${name}` is not an input{hint}")
    # Skip scripts with a here-document, which can contain quotes that do not start a string.
    for found in () if "<<" in text else _UNQUOTED.finditer(text):
        name = found[1]
        if name in inputs and not _is_one_word(scope.inputs.schemas[inputs[name]]):
            message = f'`${name}` is not quoted, so the shell splits it at spaces and expands `*`. Write "${name}"'
            scope.problems.at(TextOffset(found.start())).warning(message)


def _is_one_word(schema: Mapping[str, Json]) -> bool:
    if schema.get("type") in {"integer", "number", "boolean"}:
        return True
    choices = schema.get("enum")
    return isinstance(choices, list) and all(_ONE_WORD.fullmatch(str(choice)) for choice in choices)
