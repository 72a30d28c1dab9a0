"""Starts commands, and remembers for a moment where their programs were found on a PATH.

Why subprocess and not the loop's own: it starts children by vfork, which does not copy the daemon's page tables, as
long as nothing has to run between fork and exec (no `preexec_fn`).

Why it remembers: a start tries each directory of PATH with an execve(2) of its own until one has the program, in every
call. Shells remember the place, too, and for as long as they live (POSIX.1-2017, XCU 2.9.1.1).
"""

import errno
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping
from typing import Final

from gateway.errors import ExecutionError
from gateway.processes.process_tree import Command, ProcessTree, Sinks

_SECONDS: Final = 1.0
"""How long a program that is installed in an earlier directory may go unnoticed."""
_MAX_REMEMBERED: Final = 256
"""The environment may come from callers, and its PATH with it."""
_NO_PROCESS: Final = (
    "the program {!r} cannot be started: no more processes may be started here (the user's RLIMIT_NPROC, the service's"
    " TasksMax or the container's pids limit, or the kernel's pid_max)"
)


class NoProcessError(ExecutionError):
    """The system has no process left for this command; it may have some soon."""


class Spawner:
    """Starts the commands of calls, between `open` and `close`."""

    def __init__(self) -> None:
        self._null = subprocess.DEVNULL
        """What commands without input read: /dev/null, which stays open from one start to the next."""
        self._found: Final[dict[tuple[str, str], tuple[str, float]]] = {}
        """The file that the name of a program led to on a PATH, and until when that holds."""

    def open(self) -> None:
        self._null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)

    def close(self) -> None:
        null, self._null = self._null, subprocess.DEVNULL
        os.close(null)

    def start(
        self, command: Command, *, marker: Mapping[str, str], sinks: Sinks, afterwards: Callable[[], None]
    ) -> ProcessTree:
        """Start a command in a session of its own.

        Raises:
            NoProcessError: there is no process left to be had.
            ExecutionError: it could not be started otherwise; the text says why.
        """
        program = (*command.before, *command.argv)[0], command.environment.get("PATH", os.defpath)
        file = self._find(*program)
        try:
            try:
                process, outputs = _started(command, file, marker=marker, null=self._null)
            except OSError as error:
                if file is None or isinstance(error, BlockingIOError):
                    raise
                self._found.pop(program, None)  # it may be gone from there, or be none that this machine can run
                process, outputs = _started(command, None, marker=marker, null=self._null)
        except BlockingIOError as error:  # EAGAIN (fork(2), execve(2))
            raise NoProcessError(_NO_PROCESS.format(command.argv[0])) from error
        except (OSError, ValueError) as error:
            raise ExecutionError(_why_not_started(command, error)) from error
        return ProcessTree(process, outputs, command, sinks=sinks, afterwards=afterwards)

    def _find(self, program: str, path: str) -> str | None:
        """Return the file of a program; None where only the start itself can tell."""
        now = time.monotonic()
        known = self._found.get((program, path))
        if known is not None and now < known[1]:
            return known[0]
        found = None
        # As execvp(3) would find it; a relative directory of the path means one of the child's working directory.
        if "/" not in program and all(directory.startswith("/") for directory in path.split(os.pathsep)):
            found = shutil.which(program, path=path)
        if len(self._found) >= _MAX_REMEMBERED:
            self._found.clear()
        if found is not None:
            self._found[program, path] = found, now + _SECONDS
        return found


def _started(
    command: Command, file: str | None, *, marker: Mapping[str, str], null: int
) -> tuple[subprocess.Popen[bytes], tuple[int, int]]:
    """Start the program in `file`; None: the one that PATH leads to. Return it, and the pipes that it writes to."""
    ends: list[int] = []
    try:
        # Not subprocess.PIPE: Popen would make file objects of them, which take as long as the system calls.
        ends += os.pipe()
        ends += os.pipe()
        process = subprocess.Popen(
            [_encoded(argument) for argument in (*command.before, *command.argv)],
            executable=file,
            # The marker last: no `env:` of the file may replace it.
            env={_encoded(name): _encoded(value) for name, value in {**command.environment, **marker}.items()},
            cwd="/" if command.is_sandboxed else _encoded(command.directory),
            stdin=subprocess.PIPE if command.stdin or command.lasting_input is not None else null,
            stdout=ends[1],
            stderr=ends[3],
            bufsize=0,
            # killpg reaches its group then, and a Ctrl-C of the terminal does not; its orphans keep the session.
            start_new_session=True,
        )
    except BaseException:
        for end in ends:
            os.close(end)
        raise
    # A pipe ends when its last writer is gone, and the daemon must not be one.
    os.close(ends[1])
    os.close(ends[3])
    return process, (ends[0], ends[2])


def _encoded(text: str) -> bytes:
    """UTF-8 whatever the daemon's locale is; what came from its environment keeps its bytes."""
    return text.encode(errors="surrogateescape")


def _why_not_started(command: Command, error: OSError | ValueError) -> str:
    program, directory = (*command.before, *command.argv)[0], command.directory
    if not isinstance(error, OSError):
        return f"{program!r} cannot be started: {error}"
    # Popen names the directory if chdir(2) failed in the child, and else the program.
    if error.filename == _encoded(directory) and program != directory:
        return f"the working directory {directory!r} cannot be entered: {error.strerror}"
    if error.errno == errno.E2BIG:
        return f"the arguments of {program!r} are too long together; `stdin` has no such limit"
    match error:
        case FileNotFoundError():
            words = f"; if it has arguments, write [{', '.join(program.split())}]" if " " in program else ""
            return f"the program {program!r} is not found, or the interpreter that its first line names{words}"
        case PermissionError():
            return f"the program {program!r} may not be executed"
        case _:
            return f"the program {program!r} cannot be started: {error.strerror}"
