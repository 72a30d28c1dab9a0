"""The process tree of one call: its child with pipes and signals. `Descendants` finds its other processes."""

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


def discard(_chunk: bytes) -> None:
    """Ignore output."""


class Sinks(msgspec.Struct, frozen=True, kw_only=True):
    """The consumers of a child's output, called for each chunk."""

    stdout: Sink = discard
    stderr: Sink = discard


NOWHERE: Final = Sinks()

LINGER_SECONDS: Final = 0.1
"""How long the pipes are read after the main process has ended."""

STATUS_LOST: Final = 255
"""Exit code of a child that other code has reaped."""


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """A command line with its environment, directory and input."""

    argv: Sequence[str]
    environment: Mapping[str, str]
    directory: str
    stdin: bytes = b""
    lasting_input: LastingInput | None = None
    """Replaces `stdin` for a long-lived child."""
    before: Sequence[str] = ()
    """A command line that confines and starts the command."""
    is_sandboxed: bool = False
    """Whether that program stays as the parent of the command, ends it, and enters the directory."""

    def __repr__(self) -> str:
        return f"Command({self.argv[0]!r})"  # environment and input can contain secrets


class ProcessTree:
    """A running child that leads a session. `release` reaps it, so its process id is not reused before."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        outputs: tuple[int, int],
        command: Command,
        *,
        sinks: Sinks,
        afterwards: Callable[[], None],
    ) -> None:
        """`outputs` are the pipes of its standard output and error."""
        self.pid = process.pid
        self._is_sandboxed = command.is_sandboxed
        self._process = process
        self._afterwards = afterwards
        self._open = 2
        self._pidfd = -1
        self._loop = asyncio.get_running_loop()
        self.exit_code: int | None = None
        """The exit code, or the negative number of the signal that ended it. None while it runs."""
        self.answerable: asyncio.Future[None] = self._loop.create_future()
        """Done when the call can be answered. See `wait`."""
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
        """Wait until the child has exited and its pipes have ended, or the deadline has passed.

        The pipes are read for at most `LINGER_SECONDS` after the exit.
        """
        timer = self._loop.call_at(deadline, self._answer)
        try:
            await self.answerable
        finally:
            timer.cancel()

    def stop_pipes(self) -> None:
        """Stop reading and writing."""
        for output in self._outputs:
            output.stop()
        if self._input is not None:
            self._input.close()
        if self._lasting is not None:
            self._lasting.abandon()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the process group, whose id is not reused before `release`.

        SIGTERM would end a sandbox and so kill its command. `sandboxed` returns the processes to signal instead.
        """
        if self._is_sandboxed and number is signal.SIGTERM:
            return
        # kill(2), EPERM: all of them belong to another user (set-user-ID).
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)

    def sandboxed(self) -> Sequence[int]:
        """Return the processes in the sandbox. Parents first, so that a shell gets a signal before its children die."""
        return descendants_of(self.pid) if self._is_sandboxed and self.exit_code is None else ()

    def release(self) -> None:
        """Reap the leader, close everything and call `afterwards`."""
        if sys.platform != "linux":
            self.signal(signal.SIGKILL)  # descendants cannot be found there
        self._unwatch()
        self.stop_pipes()
        for output in self._outputs:
            output.close()
        self._outputs = ()  # breaks a reference cycle, which would keep the output until a garbage collection
        # Reaps the leader. Its process id must not be used after this.
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
            # pidfd_open(2): readable when the process ends, without reaping it.
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
            self._process.wait()  # has no waitid before Python 3.13
        else:
            with suppress(ChildProcessError):
                # WNOWAIT keeps the zombie and its process id until `release`.
                os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._has_exited)

    def _has_exited(self) -> None:
        # A pidfd stays readable, so stop watching it.
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
        # A plugin that calls os.wait() can reap any child.
        return STATUS_LOST
    if status is None:
        return STATUS_LOST
    return status.si_status if status.si_code == os.CLD_EXITED else -status.si_status
