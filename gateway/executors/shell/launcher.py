"""Prepends the programs that confine a command: bubblewrap for the sandbox, prlimit for the limits."""

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
        """Return the command with its limits and sandbox. `folder` is the directory of the call."""
        if self.sandbox is None and self.limits is None:
            return command
        before: list[str] = []
        environment = command.environment
        if self.sandbox is not None:
            shown = None if folder is None else str(folder)
            before += self.sandbox.before(program=command.argv[0], directory=command.directory, folder=shown)
        if self.limits is not None:
            # Inside the sandbox, so that `processes` counts only those of its user namespace.
            before += self.limits.shim
        if loader_variables := [name for name in environment if name.startswith(_LOADER)]:
            before += (_ENV, *(f"{name}={environment[name]}" for name in loader_variables))
            environment = {name: value for name, value in environment.items() if name not in loader_variables}
        return replace(command, environment=environment, before=before, is_sandboxed=self.sandbox is not None)

    def problem(self, exit_code: int, stderr: str) -> str | None:
        """Return why a confining program failed to start the command, if it did. Assumes an empty standard output."""
        if exit_code not in _EXIT_CODES or (self.limits is None and self.sandbox is None):
            return None
        line = stderr.partition("\n")[0]
        message = next((match.expand(text) for form, text in _MESSAGES if (match := form.fullmatch(line))), None)
        can_be_hidden = self.sandbox is not None and line.endswith(_ABSENT)
        return f"{message}. {_HIDDEN}" if message is not None and can_be_hidden else message


_ENV: Final = "/usr/bin/env"
_LOADER: Final = ("LD_", "GLIBC_TUNABLES")
"""Prefixes of variables that affect the dynamic loader.

Only the command receives them, because bubblewrap and prlimit run outside the sandbox.
"""
# If the command cannot be started, bwrap exits with 1, and env(1) and prlimit(1) exit with 126 or 127.
_EXIT_CODES: Final = frozenset({1, 126, 127})
_ABSENT: Final = "No such file or directory"
_HIDDEN: Final = "The sandbox contains the system's programs and the paths in `sandbox.readable`"
# The quotes depend on the locale.
_STARTING: Final = f"(?:bwrap: execvp|prlimit: failed to execute|{_ENV}:) [‘']?(.+?)[’']?: "
_STARTING_PATH: Final = _STARTING.replace(".+?", "[^ ]*?/.*?")
_MESSAGES: Final = tuple(
    (re.compile(form), text)
    for form, text in (
        (f"{_STARTING_PATH}{_ABSENT}", r"the program '\1' or the interpreter in its first line does not exist"),
        (f"{_STARTING}{_ABSENT}", r"the program '\1' does not exist"),
        (f"{_STARTING}Permission denied", r"the program '\1' is not executable by this user"),
        (f"{_STARTING}(.+)", r"the program '\1' cannot be started: \2"),
        (r"bwrap: Can't chdir to (.+): (.+)", r"cannot change to the working directory '\1': \2"),
        (r"bwrap: (.+)", r"the sandbox cannot be created: \1"),
        (r"prlimit: (.+)", r"the limits cannot be set: \1"),
    )
)
"""Messages of the confining programs and their replacements."""


def compile_launcher(config: Shell, *, scope: Scope) -> Launcher:
    written = None if config.cwd is None else compile_text(config.cwd, scope.at("cwd")).literal
    return Launcher(
        limits=compile_limits(config.limits, scope.problems.at("limits"), is_sandboxed=config.sandbox is not None),
        sandbox=compile_sandbox(config.sandbox, cwd=written, env=config.env, problems=scope.problems.at("sandbox")),
    )
