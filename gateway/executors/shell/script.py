"""The script of a `shell:` backend: each call's inputs are variables, and never a part of its text.

A script is written to a file in a directory that belongs to the call alone, and its interpreter is given the path:
standard input stays free, there is no limit of length, and every interpreter can do it.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from gateway.errors import ExecutionError
from gateway.executors.shell.environment import InputVariables
from gateway.json_types import JsonObject
from gateway.language.templates.render_state import json_of


class ShellScript(msgspec.Struct, frozen=True, kw_only=True):
    text: str
    interpreter: Sequence[str]
    variables: InputVariables

    def write(
        self, arguments: JsonObject, environment: Mapping[str, str], folder: Path
    ) -> tuple[list[str], dict[str, str]]:
        """Write it and its inputs; return its command line, and the environment beneath the one that is given.

        Raises:
            ExecutionError: the arguments cannot be passed.
        """
        inputs = self.variables.build(arguments)
        script, inputs_file = folder / "script", folder / "inputs.json"
        try:
            _write_privately(script, self.text)
            _write_privately(inputs_file, json_of(arguments))
        except OSError as error:
            raise ExecutionError(f"the script's inputs cannot be written: {error.strerror}") from error
        # `environment` last: no input replaces a variable that the file sets.
        return [*self.interpreter, str(script)], {**inputs, "INPUTS_FILE": str(inputs_file), **environment}


def _write_privately(path: Path, text: str) -> None:
    # Made with its mode before anything is in it.
    path.touch(mode=0o600)
    path.write_bytes(text.encode(errors="surrogatepass"))
