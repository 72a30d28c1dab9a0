"""Starts commands with subprocess, which uses vfork and does not copy the daemon's page tables."""

import errno
import os
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

from gateway.errors import ExecutionError
from gateway.processes.process_tree import Command, ProcessTree, Sinks


class NoProcessError(ExecutionError):
    """A process limit is reached. A retry can succeed."""


def start_command(
    command: Command, *, marker: Mapping[str, str], sinks: Sinks, afterwards: Callable[[], None]
) -> ProcessTree:
    """Start a command as the leader of a new session.

    Raises:
        NoProcessError: a process limit is reached.
        ExecutionError: the command cannot be started.
    """
    try:
        process, outputs = _started(command, marker=marker)
    except BlockingIOError as error:  # EAGAIN (fork(2), execve(2))
        raise NoProcessError(
            f"the program {command.argv[0]!r} cannot be started because a limit for processes is reached (RLIMIT_NPROC"
            " of the user, TasksMax of the service, the pids limit of the container, or pid_max of the kernel)"
        ) from error
    except (OSError, ValueError) as error:
        raise ExecutionError(_start_error(command, error)) from error
    return ProcessTree(process, outputs, command, sinks=sinks, afterwards=afterwards)


def _started(command: Command, *, marker: Mapping[str, str]) -> tuple[subprocess.Popen[bytes], tuple[int, int]]:
    """Start the program and return it with the read ends of its output pipes."""
    ends: list[int] = []
    try:
        # subprocess.PIPE would create file objects, which costs as much time as the system calls.
        ends += os.pipe()
        ends += os.pipe()
        process = subprocess.Popen(
            [_encoded(argument) for argument in (*command.before, *command.argv)],
            # The marker is last, so that `env:` cannot replace it.
            env={_encoded(name): _encoded(value) for name, value in {**command.environment, **marker}.items()},
            cwd="/" if command.is_sandboxed else _encoded(command.directory),
            stdin=subprocess.PIPE if command.stdin or command.lasting_input is not None else subprocess.DEVNULL,
            stdout=ends[1],
            stderr=ends[3],
            bufsize=0,
            # Lets killpg reach the whole group, and protects the group from Ctrl-C in the terminal.
            start_new_session=True,
        )
    except BaseException:
        for end in ends:
            os.close(end)
        raise
    # A pipe reaches its end when the last writer closes it.
    os.close(ends[1])
    os.close(ends[3])
    return process, (ends[0], ends[2])


def _encoded(text: str) -> bytes:
    """Encode as UTF-8, independent of the locale. Undecodable bytes from the daemon's environment are restored."""
    return text.encode(errors="surrogateescape")


def _start_error(command: Command, error: OSError | ValueError) -> str:
    program, directory = (*command.before, *command.argv)[0], command.directory
    if not isinstance(error, OSError):
        return f"{program!r} cannot be started: {error}"
    # Popen reports the directory if chdir(2) failed in the child, otherwise the program.
    if error.filename == _encoded(directory) and program != directory:
        return f"cannot change to the working directory {directory!r}: {error.strerror}"
    if error.errno == errno.E2BIG:
        return f"the arguments of {program!r} are too long. Use `stdin`, which has no such limit"
    match error:
        case FileNotFoundError():
            hint = f". If it has arguments, write [{', '.join(program.split())}]" if " " in program else ""
            path = str(Path(directory, program)) if "/" in program else program
            exists = shutil.which(path, path=command.environment.get("PATH")) is not None
            no_interpreter = f"the interpreter in the first line of {program!r} does not exist"
            return no_interpreter if exists else f"the program {program!r} does not exist{hint}"
        case PermissionError():
            return f"the program {program!r} is not executable by this user"
        case _:
            return f"the program {program!r} cannot be started: {error.strerror}"
