"""Wraps commands in the programs that confine them: bubblewrap for the sandbox, prlimit(1) or Python for the limits.

The daemon cannot use prlimit(2), because the child can fork before the call. `preexec_fn` would fork the whole daemon.
All limits are per process (setrlimit(2)), except `processes`, which is per user.
"""

import math
import os
import re
import resource
import signal
import sys
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
from gateway.platform_facilities import IS_LINUX
from gateway.processes.process_tree import Command

_SIGNALS: Final[Mapping[int, str]] = {signal.SIGXCPU: "cpu", signal.SIGXFSZ: "file_size"}
"""Signals that the kernel sends only when a process reaches a limit, and the configuration key of the limit."""
_LIMIT_MESSAGES: Final = {
    # Messages of libc, Python, C++, GNU programs, the dynamic loader, the JVM and shells.
    "memory": re.compile(
        "cannot allocate memory|memoryerror|out of memory|bad_alloc|memory exhausted|failed to map segment"
        "|insufficient memory|could not reserve enough space",
        re.IGNORECASE,
    ),
    "processes": re.compile(
        "can(not|'t) fork|resource temporarily unavailable|can't start new thread|unable to create native thread",
        re.IGNORECASE,
    ),
    "file_size": re.compile("file too large", re.IGNORECASE),
}
"""Error messages that programs write when they reach a limit."""


# Replaces prlimit(1). Resets the two signals that Python ignores, because the command would inherit the setting.
_SET_LIMITS: Final = """\
import os, resource, signal, sys
for each in (signal.SIGPIPE, signal.SIGXFSZ):
    signal.signal(each, signal.SIG_DFL)
end = sys.argv.index("--")
command = sys.argv[end + 1 :]
for each in sys.argv[1:end]:
    name, _, values = each[2:].partition("=")
    resource.setrlimit(getattr(resource, f"RLIMIT_{name.upper()}"), tuple(map(int, values.split(":"))))
try:
    os.execvp(command[0], command)
except OSError as error:
    sys.stderr.write(f"prlimit: failed to execute {command[0]}: {error.strerror}\\n")
    os._exit(127)
"""


def compile_limits(
    config: ProcessLimits | None, problems: Problems, *, is_sandboxed: bool
) -> tuple[tuple[str, ...], Mapping[str, str]]:
    """Return the command line that sets the limits, and a description of each limit by configuration key."""
    if config is None or all(each is None for each in (config.memory, config.cpu, config.processes, config.file_size)):
        return (), {}
    program = which("prlimit")
    if program is not None:
        shim = [os.path.realpath(program)]
    elif is_sandboxed:  # the daemon's Python can be invisible in the sandbox
        problems.error("requires the program `prlimit`. Install the package util-linux (Alpine: util-linux-misc)")
        return (), {}
    else:
        # -I and -S ignore the working directory, PYTHON* variables and site-packages.
        shim = [sys.executable, "-I", "-S", "-c", _SET_LIMITS]
    if config.memory is not None and not IS_LINUX:
        problems.at("memory").error("requires Linux")
        return (), {}
    # setrlimit(2): RLIMIT_NPROC is not enforced for the real user 0.
    if config.processes is not None and os.geteuid() == 0:
        problems.at("processes").warning("has no effect because the daemon runs as root. Run it as another user")
    whose = "in its sandbox" if is_sandboxed else "of the daemon's user"
    seconds = None if config.cpu is None else max(1, math.ceil(config.cpu.total_seconds()))
    most = resource.getrlimit(resource.RLIMIT_CPU)[1]
    if seconds is not None and most != resource.RLIM_INFINITY:
        seconds = min(seconds, most)
    limits = (
        # RLIMIT_RSS has had no effect since Linux 2.4.30 (setrlimit(2)).
        ("memory", "as", config.memory, "bytes of memory for each process"),
        ("cpu", "cpu", seconds, "s of processor time"),
        ("processes", "nproc", config.processes, f"processes and threads {whose}"),
        ("file_size", "fsize", config.file_size, "bytes in one file"),
    )
    shown = {key: f"{value:,} {unit}" for key, _, value, unit in limits if value is not None}
    options = [_option(name, value) for _, name, value, _ in limits if value is not None]
    # Disable core dumps. SIGXCPU and SIGXFSZ dump core (signal(7)), and the file would contain data of the call.
    return (*shim, "--core=0:0", *options, "--"), shown


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
    limits: Mapping[str, str] = {}
    """Descriptions of the limits by configuration key, for error messages."""

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

    def limit_met(self, exit_code: int, stderr: str) -> str | None:
        """Return a sentence about the limit that the command has apparently reached, or None."""
        # Shells and bubblewrap exit with 128 plus the number of the signal that ended their child.
        number = -exit_code if exit_code < 0 else exit_code - 128
        if (key := _SIGNALS.get(number, "")) in self.limits:
            return f"It reached its limit `shell.limits.{key}` ({self.limits[key]})."
        # The hard limit of RLIMIT_CPU sends SIGKILL (setrlimit(2)), which can have other causes.
        found = (key for key, message in _LIMIT_MESSAGES.items() if key in self.limits and message.search(stderr))
        key = "cpu" if number == signal.SIGKILL else next(found, "")
        return (
            f"It probably reached its limit `shell.limits.{key}` ({self.limits[key]})." if key in self.limits else None
        )

    def problem(self, exit_code: int, stderr: str) -> str | None:
        """Return why bubblewrap or prlimit failed to start the command, or None.

        Only valid if standard output is empty, because the command itself could have written the message.
        """
        if exit_code not in _EXIT_CODES or (self.sandbox is None and not self.shim):
            return None
        line = stderr.partition("\n")[0]
        message = next((match.expand(text) for form, text in _MESSAGES if (match := form.fullmatch(line))), None)
        can_be_hidden = self.sandbox is not None and line.endswith(_ABSENT)
        return f"{message}. {_HIDDEN}" if message is not None and can_be_hidden else message


_ENV: Final = "/usr/bin/env"
_LOADER: Final = ("LD_", "GLIBC_TUNABLES")
"""Prefixes of variables that affect the dynamic loader.

Only the command receives these variables, because bubblewrap and prlimit run outside the sandbox.
"""
# If the command cannot be started, bwrap exits with 1, and env(1) and prlimit(1) exit with 126 or 127.
_EXIT_CODES: Final = frozenset({1, 126, 127})
_ABSENT: Final = "No such file or directory"
_HIDDEN: Final = "The sandbox contains the system's programs and the paths in `sandbox.readable`"
# The quotation marks in error messages depend on the locale.
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


def compile_launcher(config: Shell, *, scope: Scope) -> Launcher:
    written = None if config.cwd is None else compile_text(config.cwd, scope.at("cwd")).literal
    shim, limits = compile_limits(config.limits, scope.problems.at("limits"), is_sandboxed=config.sandbox is not None)
    return Launcher(
        shim=shim,
        limits=limits,
        sandbox=compile_sandbox(config.sandbox, cwd=written, env=config.env, problems=scope.problems.at("sandbox")),
    )
