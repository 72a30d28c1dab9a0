"""The program that a call of a `shell:` backend runs: a command without a shell, or a script with inputs in variables.

A script is written to a file in a directory that belongs to the call alone, and its interpreter is given the path:
standard input stays free, there is no limit of length, and every interpreter can do it.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from gateway.errors import ExecutionError
from gateway.executors.shell.argv import Argv
from gateway.executors.shell.environment import InputVariables
from gateway.executors.shell.scratch import CallFolder
from gateway.json_types import JsonObject
from gateway.language.templates.render_state import json_of


class Launch(msgspec.Struct, frozen=True, kw_only=True):
    """One call's program, ready to start."""

    argv: Sequence[str]
    environment: Mapping[str, str]


class CommandLine(msgspec.Struct, frozen=True, kw_only=True):
    argv: Argv
    needs_folder: bool = False
    """Whether each call needs a directory of its own, whatever its arguments."""

    def prepare(self, arguments: JsonObject, environment: Mapping[str, str], folder: CallFolder | None) -> Launch:  # noqa: ARG002 - needs none
        return Launch(argv=self.argv.build(arguments), environment=environment)


class Script(msgspec.Struct, frozen=True, kw_only=True):
    text: str
    interpreter: Sequence[str]
    variables: InputVariables
    needs_folder: bool = True

    def prepare(self, arguments: JsonObject, environment: Mapping[str, str], folder: CallFolder | None) -> Launch:
        assert folder is not None  # noqa: S101 - see `needs_folder`
        inputs = self.variables.build(arguments)
        script, inputs_file = folder.path / "script", folder.path / "inputs.json"
        try:
            _write_privately(script, self.text)
            _write_privately(inputs_file, json_of(arguments))
        except OSError as error:
            raise ExecutionError(f"the script's inputs cannot be written: {error.strerror}") from error
        return Launch(
            argv=[*self.interpreter, str(script)],
            environment={**inputs, "INPUTS_FILE": str(inputs_file), **environment},
        )


Program = CommandLine | Script
"""The program of a call. `prepare` builds its command line, and the environment on top of which `environment` stands.

Raises `ExecutionError`: the arguments cannot be passed.
"""


def _write_privately(path: Path, text: str) -> None:
    path.touch(mode=0o600)
    path.write_bytes(text.encode(errors="surrogatepass"))
