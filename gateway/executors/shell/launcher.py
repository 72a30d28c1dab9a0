"""Wraps commands in the programs that confine them: bubblewrap for the sandbox, prlimit(1) for the limits.

The daemon cannot use prlimit(2), because the child can fork before the call. `preexec_fn` would fork the whole daemon.
All limits are per process (setrlimit(2)), except `processes`, which is per user.
"""

import math
import os
import resource
import signal
from collections.abc import Mapping
from pathlib import Path
from shutil import which
from typing import Final

import msgspec
from msgspec.structs import replace

from gateway.config.diagnostics.problems import Problems
from gateway.config.models.backends import ProcessLimits, Shell
from gateway.executors.shell.sandbox import CompiledSandbox, compile_sandbox
from gateway.language.scope import Scope
from gateway.language.templates.templating import compile_text
from gateway.processes.process_tree import Command

_SIGNALS: Final[Mapping[int, str]] = {signal.SIGXCPU: "cpu", signal.SIGXFSZ: "file_size"}
"""Signals that the kernel sends only when a process reaches a limit, and the configuration key of the limit."""


def compile_limits(config: ProcessLimits | None, problems: Problems) -> tuple[str, ...]:
    """Return the command line that sets the limits, or an empty tuple if no limit is configured."""
    if config is None or all(each is None for each in (config.memory, config.cpu, config.processes, config.file_size)):
        return ()
    program = which("prlimit")
    if program is None:
        problems.error(
            "requires the program `prlimit` (Linux). Install the package util-linux (Alpine: util-linux-misc)"
        )
        return ()
    # setrlimit(2): RLIMIT_NPROC is not enforced for the real user 0.
    if config.processes is not None and os.geteuid() == 0:
        problems.at("processes").warning("has no effect because the daemon runs as root. Run it as another user")
    seconds = None if config.cpu is None else max(1, math.ceil(config.cpu.total_seconds()))
    # RLIMIT_RSS has had no effect since Linux 2.4.30 (setrlimit(2)).
    limits = {"as": config.memory, "cpu": seconds, "nproc": config.processes, "fsize": config.file_size}
    options = [_option(name, value) for name, value in limits.items() if value is not None]
    # Disable core dumps. SIGXCPU and SIGXFSZ dump core (signal(7)), and the file would contain data of the call.
    return (os.path.realpath(program), "--core=0:0", *options, "--")


def _option(name: str, value: int) -> str:
    """Return an option of prlimit(1). The limit never exceeds the daemon's own hard limit."""
    most = resource.getrlimit(getattr(resource, f"RLIMIT_{name.upper()}"))[1]
    # At the soft limit for processor time, the kernel sends SIGXCPU. At the hard limit, it sends SIGKILL.
    soft, hard = value, value + (name == "cpu")
    if most != resource.RLIM_INFINITY:
        soft, hard = min(soft, most), min(hard, most)
    return f"--{name}={soft}:{hard}"


class Launcher(msgspec.Struct, frozen=True, kw_only=True):
    sandbox: CompiledSandbox | None = None
    shim: tuple[str, ...] = ()
    """The command line that sets the limits and then runs the command."""
    limits: ProcessLimits | None = None

    def confined(self, command: Command, *, folder: Path | None = None) -> Command:
        """Return the command with its limits and sandbox. `folder` is the scratch directory of the call."""
        if self.sandbox is None and not self.shim:
            return command
        wrapper: list[str] = []
        environment = command.environment
        if self.sandbox is not None:
            shown = None if folder is None else str(folder)
            wrapper += self.sandbox.wrapper(program=command.argv[0], directory=command.directory, folder=shown)
        # Set the limits inside the sandbox, so that `processes` counts only processes of its user namespace.
        wrapper += self.shim
        if loader_variables := [name for name in environment if name.startswith(_LOADER)]:
            wrapper += (_ENV, *(f"{name}={environment[name]}" for name in loader_variables))
            environment = {name: value for name, value in environment.items() if name not in loader_variables}
        return replace(command, environment=environment, wrapper=wrapper, is_sandboxed=self.sandbox is not None)

    def limit_met(self, exit_code: int) -> str | None:
        """Return a sentence about the limit that the command has reached, or None if its exit code shows no limit."""
        # Shells and bubblewrap exit with 128 plus the number of the signal that ended their child.
        key = _SIGNALS.get(-exit_code if exit_code < 0 else exit_code - 128)
        is_met = key is not None and getattr(self.limits, key, None) is not None
        return f"It reached its limit `shell.limits.{key}`." if is_met else None

    def problem(self, exit_code: int, stderr: str) -> str | None:
        """Return why bubblewrap or prlimit failed to start the command, or None.

        Only valid if standard output is empty, because the command itself could have written the message.
        """
        if exit_code not in _EXIT_CODES or (self.sandbox is None and not self.shim):
            return None
        line = stderr.partition("\n")[0]
        return line if line.startswith(_PROGRAMS) else None


_ENV: Final = "/usr/bin/env"
_LOADER: Final = ("LD_", "GLIBC_TUNABLES")
"""Prefixes of variables that affect the dynamic loader.

Only the command receives these variables, because bubblewrap and prlimit run outside the sandbox.
"""
# If the command cannot be started, bwrap exits with 1, and env(1) and prlimit(1) exit with 126 or 127.
_EXIT_CODES: Final = frozenset({1, 126, 127})
_PROGRAMS: Final = ("bwrap: ", "prlimit: ", f"{_ENV}: ")


def compile_launcher(config: Shell, *, scope: Scope) -> Launcher:
    written = None if config.cwd is None else compile_text(config.cwd, scope.at("cwd")).literal
    return Launcher(
        shim=compile_limits(config.limits, scope.problems.at("limits")),
        limits=config.limits,
        sandbox=compile_sandbox(config.sandbox, cwd=written, env=config.env, problems=scope.problems.at("sandbox")),
    )
