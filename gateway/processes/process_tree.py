"""The process tree of one call: its child, the pipes to it, and signals for it. `Descendants` finds what it started."""

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

from gateway.processes.cgroups import Cgroup
from gateway.processes.pipes import InputPipe, LastingInput, OutputPipe
from gateway.processes.process_table import descendants_of

Sink = Callable[[bytes], None]


def discard(_chunk: bytes) -> None:
    """Drop output that is not wanted."""


class Sinks(msgspec.Struct, frozen=True, kw_only=True):
    """The consumers of a child's output, called as it comes."""

    stdout: Sink = discard
    stderr: Sink = discard


NOWHERE: Final = Sinks()

LINGER_SECONDS: Final = 0.1
"""The time for which the pipes are read after the main process has ended."""

STATUS_LOST: Final = 255
"""Exit code of a child whose status other code has taken."""


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """A command line with its surroundings. Its standard input is `stdin`, and never the daemon's."""

    argv: Sequence[str]
    environment: Mapping[str, str]
    directory: str
    stdin: bytes = b""
    lasting_input: LastingInput | None = None
    """Written to as long as it runs, in place of `stdin`."""
    before: Sequence[str] = ()
    """A program, with its arguments, that confines the command and starts it."""
    is_sandboxed: bool = False
    """Whether that program stays, as the parent of the command, which it takes along when it is ended.

    It enters the directory, too, so that the command learns nothing about directories outside.
    """

    def __repr__(self) -> str:
        return f"Command({self.argv[0]!r})"  # its environment and its input may hold secrets


class ProcessTree:
    """A running child, leader of its own session. It is not reaped before `release`, which keeps its id from others."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        outputs: tuple[int, int],
        command: Command,
        *,
        sinks: Sinks,
        afterwards: Callable[[], None],
    ) -> None:
        """Watch nothing yet. `outputs` are the pipes of its standard output and error, to be read and closed."""
        self.pid = process.pid
        self.cgroup: Cgroup | None = None
        """The control group of its processes, if they could be put into one."""
        self._is_kept = command.is_sandboxed
        self._process = process
        self._afterwards = afterwards
        self._open = 2
        self._pidfd = -1
        self._loop = asyncio.get_running_loop()
        self.exit_code: int | None = None
        """The exit code, or the negative number of the signal that ended it; None as long as it runs."""
        self.answerable: asyncio.Future[None] = self._loop.create_future()
        """Done when the call need not wait any longer: see `wait`."""
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
        """Watch the pipes, and for the end."""
        self._watch()
        for output in self._outputs:
            output.start(self._loop)
        if self._input is not None:
            self._input.start(self._loop)
        elif self._lasting is not None and self._stdin is not None:
            self._lasting.attach(self._stdin)

    async def wait(self, *, deadline: float) -> None:
        """Wait until the child has exited and its pipes are at their end, LINGER_SECONDS later at most.

        At the deadline it ends as well. Why one future with timers and not `asyncio.wait`, twice: that takes longer.
        """
        timer = self._loop.call_at(deadline, self._answer)
        try:
            await self.answerable
        finally:
            timer.cancel()

    def stop_pipes(self) -> None:
        """Read and write no more."""
        for output in self._outputs:
            output.stop()
        if self._input is not None:
            self._input.close()
        if self._lasting is not None:
            self._lasting.abandon()

    def signal(self, number: signal.Signals) -> None:
        """Send to the whole process group. The id cannot be another's, for its leader is not reaped yet.

        A command that is kept is asked in `kept` instead: with its keeper it would be killed and not asked.
        """
        if self._is_kept and number is signal.SIGTERM:
            return
        # kill(2), EPERM: every one of them has become another user's, by a set-user-ID program.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)

    def confined(self) -> set[int]:
        """The living processes of its cgroup, its leader apart."""
        return set() if self.cgroup is None else self.cgroup.pids() - {self.pid}

    def kept(self) -> Sequence[int]:
        """The processes below the leader, where it only keeps them: they are known to nothing else.

        Parents first: a shell that loses a child to a signal should have had the signal, too.
        """
        return descendants_of(self.pid) if self._is_kept and self.exit_code is None else ()

    def release(self) -> None:
        """Reap the leader, close everything, and do what was to be done afterwards."""
        if sys.platform != "linux":
            self.signal(signal.SIGKILL)  # nothing tells there which descendants are left
        self._unwatch()
        self.stop_pipes()
        for output in self._outputs:
            output.close()
        self._outputs = ()  # a cycle, which would keep what the child has written until a garbage collection
        # This reaps the leader: from here on its id may be another's, and nothing is sent to it any more.
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
            # pidfd_open(2): it becomes readable when the process ends, and does not reap it.
            self._pidfd = os.pidfd_open(self.pid)
        except (AttributeError, OSError):  # not Linux, an old kernel, or no descriptors left
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
            self._process.wait()  # it has no waitid there before Python 3.13
        else:
            with suppress(ChildProcessError):
                # WNOWAIT leaves a zombie, which keeps the id this tree's until `release`.
                os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._has_exited)

    def _has_exited(self) -> None:
        # A pidfd stays readable: the loop would call this again in each turn.
        self._unwatch()
        if self.exit_code is None:
            self.exit_code = _exit_code(self._process)
        if self._open:
            # Something that it left in the background (`sleep 60 &`) may hold the pipes open as long as it lives.
            self._loop.call_later(LINGER_SECONDS, self._answer)
        else:
            self._answer()


def _exit_code(process: subprocess.Popen[bytes]) -> int:
    if process.returncode is not None:
        return process.returncode
    try:
        status = os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG)
    except ChildProcessError:
        # Other code has reaped it: a plugin that calls os.wait() gets any child of the process.
        return STATUS_LOST
    if status is None:
        return STATUS_LOST
    return status.si_status if status.si_code == os.CLD_EXITED else -status.si_status
