"""The process tree of one call: the main process, its pipes and its signals."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final

import msgspec

from gateway.processes.pipes import InputPipe, LastingInput, OutputPipe
from gateway.processes.process_table import descendants_of

Sink = Callable[[bytes], None]


def discard(_chunk: bytes) -> None: ...


class Sinks(msgspec.Struct, frozen=True, kw_only=True):
    stdout: Sink = discard
    stderr: Sink = discard


NOWHERE: Final = Sinks()

LINGER_SECONDS: Final = 0.1
"""How long the pipes are read after the main process has ended."""

STATUS_LOST: Final = 255
"""Exit code of a child that other code has reaped."""


class Command(msgspec.Struct, frozen=True, kw_only=True):
    argv: Sequence[str]
    environment: Mapping[str, str]
    directory: str
    stdin: bytes = b""
    lasting_input: LastingInput | None = None
    """Replaces `stdin` for a long-lived child."""
    before: Sequence[str] = ()
    """A command line that starts the command with limits or in a sandbox."""
    is_sandboxed: bool = False
    """Whether `before` creates a sandbox: bubblewrap stays the parent of the command and changes to the directory."""

    def __repr__(self) -> str:
        return f"Command({self.argv[0]!r})"  # environment and input can contain secrets


class ProcessTree:
    """A running child that leads its own session. Its process id is not reused before `release`."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        outputs: tuple[int, int],
        command: Command,
        *,
        sinks: Sinks,
        afterwards: Callable[[], None],
    ) -> None:
        """`outputs` are the read ends of standard output and error."""
        self.pid = process.pid
        self._is_sandboxed = command.is_sandboxed
        self._process = process
        self._afterwards = afterwards
        self._open = 2
        self._pidfd = -1
        self._loop = asyncio.get_running_loop()
        self.exit_code: int | None = None
        """The exit code, or the negative signal number. None while the process runs."""
        self.answerable: asyncio.Future[None] = self._loop.create_future()
        self._outputs: tuple[OutputPipe, ...] = (
            OutputPipe(outputs[0], sink=sinks.stdout, at_end=self._one_at_end),
            OutputPipe(outputs[1], sink=sinks.stderr, at_end=self._one_at_end),
        )
        self._input = None
        self._lasting = command.lasting_input
        self._stdin = process.stdin
        if process.stdin is not None and self._lasting is None:
            self._input = InputPipe(process.stdin, command.stdin)

    def start(self) -> None:
        self._watch()
        for output in self._outputs:
            output.start(self._loop)
        if self._input is not None:
            self._input.start(self._loop)
        elif self._lasting is not None and self._stdin is not None:
            self._lasting.attach(self._stdin)

    async def wait(self, *, deadline: float) -> None:
        """Wait until the child has exited and its pipes are closed, or the deadline has passed.

        The pipes are read for at most `LINGER_SECONDS` after the exit.
        """
        timer = self._loop.call_at(deadline, self._answer)
        try:
            await self.answerable
        finally:
            timer.cancel()

    def stop_pipes(self) -> None:
        for output in self._outputs:
            output.stop()
        if self._input is not None:
            self._input.close()
        if self._lasting is not None:
            self._lasting.abandon()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the process group.

        Does not send SIGTERM to a sandbox: bubblewrap would exit and kill the command. See `sandboxed`.
        """
        if self._is_sandboxed and number is signal.SIGTERM:
            return
        # EPERM (kill(2)): every process belongs to another user (set-user-ID).
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)

    def sandboxed(self) -> Sequence[int]:
        """Return the processes in the sandbox, parents first, so that a shell is signalled before its children exit."""
        return descendants_of(self.pid) if self._is_sandboxed and self.exit_code is None else ()

    def release(self) -> None:
        """Reap the leader, close the pipes and call `afterwards`."""
        if sys.platform != "linux":
            self.signal(signal.SIGKILL)  # descendants cannot be found on other systems
        self._unwatch()
        self.stop_pipes()
        for output in self._outputs:
            output.close()
        self._outputs = ()  # breaks a reference cycle that would keep the output in memory
        # Reaps the leader. Its process id must not be used afterwards.
        self._process.poll()
        self._afterwards()

    def _one_at_end(self) -> None:
        self._open -= 1
        if not self._open and self.exit_code is not None:
            self._answer()

    def _answer(self) -> None:
        if not self.answerable.done():
            self.answerable.set_result(None)

    def _watch(self) -> None:
        try:
            # pidfd_open(2): readable once the process has ended. Does not reap it.
            self._pidfd = os.pidfd_open(self.pid)
        except (AttributeError, OSError):  # other systems, old kernels, or no descriptors left
            threading.Thread(target=self._wait_in_thread, name=f"wait-{self.pid}", daemon=True).start()
        else:
            self._loop.add_reader(self._pidfd, self._has_exited)

    def _unwatch(self) -> None:
        if self._pidfd >= 0:
            self._loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = -1

    def _wait_in_thread(self) -> None:
        if sys.platform == "darwin":
            self._process.wait()  # no waitid before Python 3.13
        else:
            with suppress(ChildProcessError):
                # WNOWAIT keeps the zombie, and so its process id, until `release`.
                os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._has_exited)

    def _has_exited(self) -> None:
        # A pidfd stays readable.
        self._unwatch()
        if self.exit_code is None:
            self.exit_code = _exit_code(self._process)
        if self._open:
            # A background process (`sleep 60 &`) can keep the pipes open.
            self._loop.call_later(LINGER_SECONDS, self._answer)
        else:
            self._answer()


def _exit_code(process: subprocess.Popen[bytes]) -> int:
    if process.returncode is not None:
        return process.returncode
    try:
        status = os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG)
    except ChildProcessError:
        # For example, a plugin has called os.wait().
        return STATUS_LOST
    if status is None:
        return STATUS_LOST
    return status.si_status if status.si_code == os.CLD_EXITED else -status.si_status
