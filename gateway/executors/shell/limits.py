"""Resource limits of a child: `shell.limits`, set by prlimit(1), which stands before the command.

Why a program in front, and not prlimit(2) on the child's pid: a child that is spawned by vfork runs at once, and what
it forks in the moment before its limits are set has none. The shim sets its own limits and becomes the command, so that
nothing ever runs without them. Measured for `true`: 0.7 ms of processor time alone, 1.5 with the shim, 1.6 with a shell
that waits on a pipe until the limits are set from outside; `preexec_fn` costs a fork of the whole daemon.

Each limit is that of one process, as setrlimit(2) has it, but for `processes`, which counts those of a user.
"""

import math
import os
import resource
import signal
import sys
from typing import Final

import msgspec

from gateway.config.diagnostics.problems import Problems
from gateway.config.machine_facts import program_path, real_path
from gateway.config.models.backends import ProcessLimits

_THROUGH_A_SHELL: Final = 128
"""The number that a shell, and bubblewrap, add to the signal that ended their child."""


class ChildLimit(msgspec.Struct, frozen=True, kw_only=True):
    """One limit that is set, and how a command shows that it has met it."""

    key: str
    shown: str
    signals: frozenset[int] = frozenset()
    """The kernel sends them for this reason alone."""
    hints: tuple[str, ...] = ()
    """Messages of programs, in lower case."""

    def met(self, exit_code: int, stderr: str) -> str | None:
        """Say in a sentence that a command has met it, if it looks so."""
        number = -exit_code if exit_code < 0 else exit_code - _THROUGH_A_SHELL
        if number in self.signals:
            return f"It has met its limit `shell.limits.{self.key}` ({self.shown})."
        said = stderr.lower()
        # RLIMIT_CPU ends with KILL at its hard limit (setrlimit(2)); so may others, hence "probably".
        if (self.key == "cpu" and number == signal.SIGKILL) or any(hint in said for hint in self.hints):
            return f"It has probably met its limit `shell.limits.{self.key}` ({self.shown})."
        return None


class ChildLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Compiled limits."""

    shim: tuple[str, ...]
    """The program, with its options, that sets them and becomes the command that follows."""
    limits: tuple[ChildLimit, ...]

    def met(self, exit_code: int, stderr: str) -> str | None:
        """Say which limit a failed command has met, if it looks so."""
        return next((said for limit in self.limits if (said := limit.met(exit_code, stderr))), None)


def compile_limits(config: ProcessLimits | None, problems: Problems, *, is_sandboxed: bool) -> ChildLimits | None:
    """Make the limits ready; None without any, and where they cannot be set, which is then reported."""
    if config is None or all(each is None for each in (config.memory, config.cpu, config.processes, config.file_size)):
        return None
    program = program_path("prlimit")
    if program is None or sys.platform != "linux":
        problems.error(
            "needs Linux and the program `prlimit`: install the package util-linux (Alpine: util-linux-misc)"
        )
        return None
    # setrlimit(2): RLIMIT_NPROC is not enforced for the real user 0.
    if config.processes is not None and os.geteuid() == 0:
        problems.at("processes").warning("does not bind root, as whom the daemon runs: start it as a user of its own")
    options, limits = _settled(config, is_sandboxed=is_sandboxed)
    # --core=0: SIGXCPU and SIGXFSZ dump core (signal(7)), and a dump would hold the call's data.
    return ChildLimits(shim=(real_path(program), "--core=0", *options, "--"), limits=limits)


def _settled(config: ProcessLimits, *, is_sandboxed: bool) -> tuple[list[str], tuple[ChildLimit, ...]]:
    options: list[str] = []
    limits: list[ChildLimit] = []
    if config.memory is not None:
        # Address space, since RLIMIT_RSS has had no effect from Linux 2.4.30 on (setrlimit(2)).
        options.append(f"--as={_attainable(config.memory, resource.RLIMIT_AS)}")
        shown = f"{config.memory:,} bytes of memory for each process"
        limits.append(ChildLimit(key="memory", shown=shown, hints=_NO_MEMORY))
    if config.cpu is not None:
        seconds = _attainable(max(1, math.ceil(config.cpu.total_seconds())), resource.RLIMIT_CPU)
        # At the first it gets SIGXCPU, which says why; one that goes on even so is killed at the second.
        options.append(f"--cpu={seconds}:{_attainable(seconds + 1, resource.RLIMIT_CPU)}")
        limits.append(
            ChildLimit(key="cpu", shown=f"{seconds} s of processor time", signals=frozenset({signal.SIGXCPU}))
        )
    if config.processes is not None:
        options.append(f"--nproc={_attainable(config.processes, resource.RLIMIT_NPROC)}")
        whose = "in its sandbox" if is_sandboxed else "of the daemon's user"
        shown = f"{config.processes} processes and threads {whose}"
        limits.append(ChildLimit(key="processes", shown=shown, hints=_NO_PROCESS))
    if config.file_size is not None:
        options.append(f"--fsize={_attainable(config.file_size, resource.RLIMIT_FSIZE)}")
        shown = f"{config.file_size:,} bytes in one file"
        signals = frozenset({signal.SIGXFSZ})
        limits.append(ChildLimit(key="file_size", shown=shown, signals=signals, hints=("file too large",)))
    return options, tuple(limits)


# The words of libc, Python, C++, GNU programs, the dynamic loader and the JVM.
_NO_MEMORY: Final = (
    "cannot allocate memory",
    "memoryerror",
    "out of memory",
    "bad_alloc",
    "memory exhausted",
    "failed to map segment",
    "insufficient memory",
    "could not reserve enough space",
)
# The words of shells, libc (EAGAIN), Python and the JVM.
_NO_PROCESS: Final = (
    "cannot fork",
    "can't fork",
    "resource temporarily unavailable",
    "can't start new thread",
    "unable to create native thread",
)


def _attainable(value: int, kind: int) -> int:
    """The daemon's own hard limit where that is lower: no process may exceed it."""
    hard = resource.getrlimit(kind)[1]
    return value if hard == resource.RLIM_INFINITY else min(value, hard)
