"""Puts what confines a command before it: the shim that sets its limits, the sandbox that it runs in.

Both are programs that end by starting the command. Their own errors before that are distinguished here from what the
command writes.
"""

import re
from pathlib import Path
from typing import Final

import msgspec
from msgspec.structs import replace

from gateway.config.models.backends import Shell
from gateway.executors.shell.limits import ChildLimits, compile_limits
from gateway.executors.shell.sandbox import CompiledSandbox, compile_sandbox
from gateway.language.scope import Scope
from gateway.language.templates.templating import compile_text
from gateway.processes.process_tree import Command


class Launcher(msgspec.Struct, frozen=True, kw_only=True):
    limits: ChildLimits | None
    sandbox: CompiledSandbox | None

    def confined(self, command: Command, *, folder: Path | None = None) -> Command:
        """The command of one call behind what confines it; `folder` is the directory of the call."""
        if self.sandbox is None and self.limits is None:
            return command
        before: list[str] = []
        environment = command.environment
        if self.sandbox is not None:
            shown = None if folder is None else str(folder)
            before += self.sandbox.before(program=command.argv[0], directory=command.directory, folder=shown)
        if self.limits is not None:
            # Behind the sandbox, so that `processes` counts those of its user namespace alone.
            before += self.limits.shim
        if heeded := [name for name in environment if name.startswith(_LOADER)]:
            before += (_ENV, *(f"{name}={environment[name]}" for name in heeded))
            environment = {name: value for name, value in environment.items() if name not in heeded}
        return replace(command, environment=environment, before=before, is_sandboxed=self.sandbox is not None)

    def problem(self, exit_code: int, stderr: str) -> str | None:
        """Say why the command was not even started, if it was not; to be asked when it wrote nothing else."""
        if exit_code not in _OWN_CODES or (self.limits is None and self.sandbox is None):
            return None
        line = stderr.partition("\n")[0]
        said = next((match.expand(said) for form, said in _COMPLAINTS if (match := form.fullmatch(line))), None)
        may_be_hidden = self.sandbox is not None and line.endswith(_ABSENT)
        return f"{said}; {_HIDDEN}" if said is not None and may_be_hidden else said


_ENV: Final = "/usr/bin/env"
_LOADER: Final = ("LD_", "GLIBC_TUNABLES")
"""The beginnings of the names of variables that the dynamic loader obeys. They are set for the command alone: libraries
that it could plant must not be loaded by the programs that confine it, outside the sandbox."""
# bwrap ends with 1, env(1) and prlimit(1) with 126 or 127 where they cannot start the command.
_OWN_CODES: Final = frozenset({1, 126, 127})
_ABSENT: Final = "No such file or directory"
_HIDDEN: Final = "its sandbox shows the system's programs, and what `sandbox.readable` names"
# The quotes are those of the program's locale.
_STARTING: Final = f"(?:bwrap: execvp|prlimit: failed to execute|{_ENV}:) [‘']?(.+?)[’']?: "
_COMPLAINTS: Final = tuple(
    (re.compile(form), said)
    for form, said in (
        (
            f"{_STARTING}{_ABSENT}",
            r"the program '\1' is not found, or the interpreter that its first line names",
        ),
        (f"{_STARTING}Permission denied", r"the program '\1' may not be executed"),
        (f"{_STARTING}(.+)", r"the program '\1' cannot be started: \2"),
        (r"bwrap: Can't chdir to (.+): (.+)", r"the working directory '\1' cannot be entered: \2"),
        (r"bwrap: (.+)", r"the sandbox cannot be made: \1"),
        (r"prlimit: (.+)", r"the limits cannot be set: \1"),
    )
)
"""Their messages, and the wording for the model."""


def compile_launcher(config: Shell, *, scope: Scope) -> Launcher:
    """Compile `limits` and `sandbox` of a `shell:`, at whose place `scope` looks; mistakes are reported."""
    written = None if config.cwd is None else compile_text(config.cwd, scope.at("cwd")).literal
    return Launcher(
        limits=compile_limits(config.limits, scope.problems.at("limits"), is_sandboxed=config.sandbox is not None),
        sandbox=compile_sandbox(config.sandbox, cwd=written, env=config.env, problems=scope.problems.at("sandbox")),
    )
