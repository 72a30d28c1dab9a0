"""Starts the main process of a call, connects its pipes, and sends signals to its process group."""

import asyncio
import errno
import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from gateway.errors import ExecutionError
from gateway.processes.pipes import InputBuffer, OutputPipe
from gateway.processes.process_table import descendants_of

Sink = Callable[[bytes], None]


def discard(_chunk: bytes) -> None: ...


LINGER_SECONDS: Final = 0.1
"""How long the pipes are still read after the main process has ended."""

STATUS_LOST: Final = 255
"""Reported as the exit code of a child if other code has reaped the child."""


class Command(msgspec.Struct, frozen=True, kw_only=True):
    argv: Sequence[str]
    environment: Mapping[str, str]
    directory: str
    stdin: bytes = b""
    stdout: Sink = discard
    stderr: Sink = discard
    lasting_input: InputBuffer | None = None
    """The input of a long-lived child, instead of `stdin`."""
    wrapper: Sequence[str] = ()
    """A command line that precedes `argv`, and runs `argv` with limits or in a sandbox."""
    is_sandboxed: bool = False
    """Whether `wrapper` starts bubblewrap, which is then the command's parent process and changes to `directory`."""

    def __repr__(self) -> str:
        return f"Command({self.argv[0]!r})"  # environment and input can contain secrets


class ProcessTree:
    """A child process that leads its own session."""

    def __init__(
        self,
        command: Command,
        *,
        marker: Mapping[str, str],
        afterwards: Callable[[], None],
        keeps_zombie: bool,
    ) -> None:
        """Start a command as the leader of a new session.

        `marker` is an environment variable that identifies the call. `release` calls `afterwards`. With `keeps_zombie`,
        only `release` reaps the leader, so that the process id is not reused earlier.

        Raises:
            NoProcessError: a process limit is reached.
            ExecutionError: the command cannot be started.
        """
        self._process, outputs = _started(command, marker=marker)
        self.pid = self._process.pid
        self._is_sandboxed = command.is_sandboxed
        self._afterwards = afterwards
        self._keeps_zombie = keeps_zombie
        self._open = 2
        self._pidfd = -1
        self._loop = asyncio.get_running_loop()
        self.exit_code: int | None = None
        """The exit code, or the negative signal number. None while the process runs."""
        self._finished = asyncio.Event()
        self._outputs: tuple[OutputPipe, ...] = (
            OutputPipe(outputs[0], sink=command.stdout, at_end=self._pipe_ended),
            OutputPipe(outputs[1], sink=command.stderr, at_end=self._pipe_ended),
        )
        self.is_lasting = command.lasting_input is not None
        self._input = command.lasting_input or InputBuffer(limit=len(command.stdin))
        if not self.is_lasting:
            self._input.write(command.stdin)
            self._input.close()

    def start(self) -> None:
        self._watch()
        for output in self._outputs:
            output.start()
        if self._process.stdin is not None:
            self._input.attach(self._process.stdin)

    async def wait(self, *, deadline: float) -> None:
        """Wait until the child has exited and its pipes are closed, or the deadline has passed.

        The pipes are read for at most `LINGER_SECONDS` after the exit.
        """
        timer = self._loop.call_at(deadline, self._finished.set)
        try:
            await self._finished.wait()
        finally:
            timer.cancel()

    def stop_pipes(self) -> None:
        for output in self._outputs:
            output.stop()
        self._input.abandon()
        if self._process.stdin is not None:  # not attached if the start failed
            self._process.stdin.close()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the process group.

        SIGTERM is not sent to bubblewrap, which would exit and kill the command. Signal `sandboxed` instead.
        """
        if self._is_sandboxed and number is signal.SIGTERM:
            return
        # EPERM (kill(2)): every process of the group belongs to another user (set-user-ID).
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)

    @property
    def has_group(self) -> bool:
        """Whether the process group has members, including zombies that another process must reap."""
        try:
            # Reap zombies of the group, because the first process of a container inherits orphans.
            while os.waitpid(-self.pid, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            pass
        try:
            os.killpg(self.pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            pass
        return True

    def sandboxed(self) -> Sequence[int]:
        """Return the ids of the sandboxed processes, parents first. A shell must be signalled before its children."""
        return descendants_of(self.pid) if self._is_sandboxed and self.exit_code is None else ()

    def release(self) -> None:
        """Reap the leader, close the pipes and call `afterwards`."""
        self._unwatch()
        self.stop_pipes()
        for output in self._outputs:
            output.close()
        self._outputs = ()  # breaks a reference cycle that would keep the output in memory
        # `poll` reaps the leader. Afterwards, the process id must not be used.
        self._process.poll()
        self._afterwards()

    def _pipe_ended(self) -> None:
        self._open -= 1
        if not self._open and self.exit_code is not None:
            self._finished.set()

    def _watch(self) -> None:
        if self._keeps_zombie:
            with suppress(OSError):  # no descriptors left
                # pidfd_open(2): the descriptor becomes readable when the process ends. The process stays a zombie.
                self._pidfd = os.pidfd_open(self.pid)
        if self._pidfd < 0:
            threading.Thread(target=self._wait_in_thread, name=f"wait-{self.pid}", daemon=True).start()
        else:
            self._loop.add_reader(self._pidfd, self._has_exited)

    def _unwatch(self) -> None:
        if self._pidfd >= 0:
            self._loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = -1

    def _wait_in_thread(self) -> None:
        if self._keeps_zombie:
            with suppress(ChildProcessError):
                os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
        else:
            self._process.wait()
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._has_exited)

    def _has_exited(self) -> None:
        # Stop watching, because a pidfd stays readable.
        self._unwatch()
        if self.exit_code is None:
            self.exit_code = _exit_code(self._process)
        if self._open:
            # A background process (`sleep 60 &`) can keep the pipes open.
            self._loop.call_later(LINGER_SECONDS, self._finished.set)
        else:
            self._finished.set()


def _exit_code(process: subprocess.Popen[bytes]) -> int:
    if process.returncode is not None:
        return process.returncode
    try:
        status = os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG)
    except ChildProcessError:
        status = None
    if status is None:  # for example, a plugin has called os.wait()
        return STATUS_LOST
    return status.si_status if status.si_code == os.CLD_EXITED else -status.si_status


class NoProcessError(ExecutionError):
    """A process limit is reached. A retry can succeed."""


def _started(command: Command, *, marker: Mapping[str, str]) -> tuple[subprocess.Popen[bytes], tuple[int, int]]:
    ends: list[int] = []
    try:
        # Popen uses vfork, which does not copy the daemon's page tables, as long as there is no `preexec_fn`.
        # Do not use subprocess.PIPE: creating its file objects takes as much time as the system calls.
        ends += os.pipe()
        ends += os.pipe()
        process = subprocess.Popen(
            [_encoded(argument) for argument in (*command.wrapper, *command.argv)],
            # The marker is last, so that `env:` cannot replace it.
            env={_encoded(name): _encoded(value) for name, value in {**command.environment, **marker}.items()},
            cwd="/" if command.is_sandboxed else _encoded(command.directory),
            stdin=subprocess.PIPE if command.stdin or command.lasting_input is not None else subprocess.DEVNULL,
            stdout=ends[1],
            stderr=ends[3],
            bufsize=0,
            # In a new session, killpg reaches the whole group, and Ctrl-C in the terminal does not.
            start_new_session=True,
        )
    except BaseException as error:
        for end in ends:
            os.close(end)
        if isinstance(error, OSError | ValueError):
            kind = NoProcessError if isinstance(error, BlockingIOError) else ExecutionError
            raise kind(_start_error(command, error)) from error
        raise
    # Close the child's ends, because a pipe ends only when all writers have closed it.
    os.close(ends[1])
    os.close(ends[3])
    return process, (ends[0], ends[2])


def _encoded(text: str) -> bytes:
    """Encode text as UTF-8 in every locale, and restore undecodable bytes of the daemon's environment."""
    return text.encode(errors="surrogateescape")


def _start_error(command: Command, error: OSError | ValueError) -> str:
    program, directory = (*command.wrapper, *command.argv)[0], command.directory
    match error:
        case BlockingIOError():  # EAGAIN (fork(2), execve(2))
            message = (
                f"the program {command.argv[0]!r} cannot be started because a limit for processes is reached"
                " (RLIMIT_NPROC of the user, TasksMax of the service, the pids limit of the container, or pid_max"
                " of the kernel)"
            )
        # Popen reports the directory if chdir(2) failed in the child, otherwise the program.
        case OSError() if error.filename == _encoded(directory) and program != directory:
            message = f"cannot change to the working directory {directory!r}: {error.strerror}"
        case OSError(errno=errno.E2BIG):
            message = f"the arguments of {program!r} are too long. Use `stdin`, which has no such limit"
        case FileNotFoundError():
            path = str(Path(directory, program)) if "/" in program else program
            hint = f". If it has arguments, write [{', '.join(program.split())}]" if " " in program else ""
            message = f"the program {program!r} does not exist{hint}"
            if shutil.which(path, path=command.environment.get("PATH")) is not None:
                message = f"the interpreter in the first line of {program!r} does not exist"
        case PermissionError():
            message = f"the program {program!r} is not executable by this user"
        case _:
            message = f"the program {program!r} cannot be started: {getattr(error, 'strerror', None) or error}"
    return message
