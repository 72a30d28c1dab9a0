"""The program that a call of a `shell:` backend runs: a command without a shell, or a script with inputs in variables.

A script is written to a file in a directory that belongs to the call alone, and its interpreter is given the path:
standard input stays free, there is no limit of length, and every interpreter can do it.
"""

import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, Protocol

import msgspec

from gateway.errors import ExecutionError
from gateway.executors.shell.argv import Argv
from gateway.executors.shell.environment import InputVariables
from gateway.json_types import JsonObject
from gateway.language.templates.render_state import json_of

SCRATCH: Final = "mcp-gateway-"
"""The beginning of the names of calls' directories."""


class Launch(msgspec.Struct, frozen=True, kw_only=True):
    """One call's program, ready to start."""

    argv: Sequence[str]
    environment: Mapping[str, str]
    folder: str | None = None
    """The call's own directory, if it needed one."""
    clean_up: Callable[[], None]
    """Removes what was made for the call; to be called when nothing uses it any more."""


class Program(Protocol):
    def prepare(self, arguments: JsonObject, environment: Mapping[str, str]) -> Launch:
        """Build the command line, and the environment on top of which `environment` stands.

        Raises:
            ExecutionError: the arguments cannot be passed.
        """


class CommandLine(msgspec.Struct, frozen=True, kw_only=True):
    argv: Argv

    def prepare(self, arguments: JsonObject, environment: Mapping[str, str]) -> Launch:
        return Launch(argv=self.argv.build(arguments), environment=environment, clean_up=_nothing)


def _nothing() -> None:
    pass


class Script(msgspec.Struct, frozen=True, kw_only=True):
    text: str
    interpreter: Sequence[str]
    variables: InputVariables

    def prepare(self, arguments: JsonObject, environment: Mapping[str, str]) -> Launch:
        inputs = self.variables.build(arguments)
        try:
            folder = Path(tempfile.mkdtemp(prefix=SCRATCH))
        except OSError as error:
            raise ExecutionError(f"the script's inputs cannot be written: {error.strerror}") from error
        script, inputs_file = folder / "script", folder / "inputs.json"
        launch = Launch(
            argv=[*self.interpreter, str(script)],
            environment={**inputs, "INPUTS_FILE": str(inputs_file), **environment},
            folder=str(folder),
            clean_up=lambda: shutil.rmtree(folder, ignore_errors=True),
        )
        try:
            _write_privately(script, self.text)
            _write_privately(inputs_file, json_of(arguments))
        except OSError as error:
            launch.clean_up()
            raise ExecutionError(f"the script's inputs cannot be written: {error.strerror}") from error
        return launch


def _write_privately(path: Path, text: str) -> None:
    path.touch(mode=0o600)
    path.write_bytes(text.encode(errors="surrogatepass"))
