"""Runs the commands of calls and ends all their processes.

A call ends when its main process ends. Its other processes receive SIGTERM and, after a grace period, SIGKILL. After
a timeout, the caller receives an error at once, and a task that holds the call's permit ends the processes.

Orphans are reaped or killed at the end of calls, before new commands, and twice a second. SIGCHLD is not used: it would
wake the daemon once more per call and does not reach an event loop outside the main thread.

On systems where descendants cannot be found (`platform_facilities`), only the process group of a call is ended.
"""

import asyncio
import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Final, Self

import structlog

from gateway.deadline import DeadlineExceededError
from gateway.errors import ExecutionError
from gateway.platform_facilities import become_subreaper
from gateway.processes.leftovers import DeathGuard, end_leftovers
from gateway.processes.process_table import ORPHAN, Descendants, Families
from gateway.processes.process_tree import Command, NoProcessError, ProcessTree
from gateway.threads import Permit

log: Final = structlog.get_logger(__name__)

KILL_SECONDS: Final = 5.0
"""How long to wait for the end of a killed process tree, because a process can hang in the kernel."""
SWEEP_SECONDS: Final = 0.5
"""The interval between searches for orphans."""
_KILLING_SECONDS: Final = 0.02
"""The interval between searches for orphans while orphans are being killed."""
_SCANS_AT_EXIT: Final = 50
"""The maximum number of searches for orphans at exit, because processes of other users (`sudo`) cannot be killed."""
_RECENT_SECONDS: Final = 0.1
"""Before a new command, the search for orphans is skipped if the last search was within this time."""
_CHECK_SECONDS: Final = 0.02
"""The interval between checks whether a process tree has ended."""


def _nothing() -> None: ...


class Processes:
    """Runs commands in an `async with` block, and ends all processes of the commands when the block exits."""

    def __init__(self, *, grace_seconds: float = 5.0) -> None:
        self._grace = grace_seconds
        self._descendants = Descendants()
        self._death_guard = DeathGuard()
        self._can_adopt = False
        self._killed: set[int] = set()
        self.orphans_killed = 0
        self._scanned_at = 0.0
        self._sweeping: asyncio.Task[None] | None = None
        self._trees: set[ProcessTree] = set()
        self._endings: dict[ProcessTree, asyncio.Task[None]] = {}
        self._is_closed = False

    async def __aenter__(self) -> Self:
        self._can_adopt = become_subreaper()
        # Kill leftovers first, because `open` replaces the marker in os.environ.
        if self._can_adopt and (left := end_leftovers()):
            log.warning("ended the processes of a killed daemon", processes=left)
        self._descendants.open()
        if self._can_adopt:
            self._sweeping = asyncio.create_task(self._sweep_often(), name="reap orphans")
        return self

    async def __aexit__(self, *_: object) -> None:
        self._is_closed = True
        for tree in self._trees:
            self._end_later(tree)
        if self._endings:
            # gather would raise the first exception while other tasks are still running.
            await asyncio.wait(self._endings.values())
        if self._sweeping is not None:
            self._sweeping.cancel()
            await asyncio.wait([self._sweeping])
        self._death_guard.stop()
        for _scan in range(_SCANS_AT_EXIT):
            if not self._scan():
                break
            await asyncio.sleep(_KILLING_SECONDS)

    def kill_all(self) -> None:
        """Kill all processes at once, from any thread, before the daemon exits."""
        self._is_closed = True
        # Copied because the loop's thread can change the set.
        for tree in tuple(self._trees):
            tree.signal(signal.SIGKILL)
        for pid in self._descendants.marked():
            _send(pid, signal.SIGKILL)

    @property
    def running(self) -> int:
        return len(self._trees) - len(self._endings)

    @property
    def ending(self) -> int:
        return len(self._endings)

    @property
    def orphans(self) -> int:
        return self._descendants.living

    @property
    def orphans_reaped(self) -> int:
        return self._descendants.reaped

    @property
    def tracked_by(self) -> str:
        """The method of finding the processes of a call: an environment variable (`marker`) or the process `group`."""
        return "marker" if self._can_adopt else "group"

    async def run(
        self,
        command: Command,
        *,
        deadline: float,
        permit: Permit,
        afterwards: Callable[[], None] = _nothing,
    ) -> int:
        """Run a command and return its exit code, or the negative number of the signal that ended it.

        `deadline` uses the loop's clock. `afterwards` is called when all processes of the command have ended.

        Raises:
            DeadlineExceededError: the command was still running at the deadline.
            ExecutionError: the command cannot be started.
        """
        began = asyncio.get_running_loop().time()
        try:
            tree = self._start(command, deadline=deadline, afterwards=afterwards)
        except BaseException:
            afterwards()  # no tree exists that would call `afterwards`
            raise
        try:
            tree.start()
            await tree.wait(deadline=deadline)
            if tree.exit_code is None:
                raise DeadlineExceededError(repr(command.argv[0]), deadline - began)
            return tree.exit_code
        finally:
            # MCP 2025-11-25 basic/utilities/cancellation: a cancelled request stops and frees its resources.
            self._finish(tree, permit)

    def _start(self, command: Command, *, deadline: float, afterwards: Callable[[], None]) -> ProcessTree:
        if self._is_closed:
            raise ExecutionError("the server is stopping")
        if asyncio.get_running_loop().time() >= deadline:
            raise DeadlineExceededError(f"The start of {command.argv[0]!r}", 0.0)
        if time.monotonic() - self._scanned_at > _RECENT_SECONDS:
            self._scan()
        marker = self._descendants.new_marker()
        start = partial(ProcessTree, command, marker=marker, afterwards=afterwards, keeps_zombie=self._can_adopt)
        try:
            tree = start()
        except NoProcessError:
            self._scan(is_urgent=True)
            tree = start()
        # Do not await before `add`: a search would kill the new process as an orphan.
        self._descendants.add(tree.pid, marker)
        if tree.is_lasting:
            self._death_guard.add(tree.pid)
        self._trees.add(tree)
        return tree

    def _finish(self, tree: ProcessTree, permit: Permit) -> None:
        """Release the tree if it has ended. Otherwise, end the tree in a task that holds the call's permit."""
        if tree not in self._trees:
            return
        if tree not in self._endings and self._has_ended(tree, self._members(tree)):
            self._release(tree)
        else:
            tree.stop_pipes()
            permit.hold_until_done(self._end_later(tree))

    def _end_later(self, tree: ProcessTree) -> asyncio.Task[None]:
        if tree not in self._endings:
            self._endings[tree] = asyncio.create_task(self._end(tree), name=f"end process tree {tree.pid}")
        return self._endings[tree]

    async def _end(self, tree: ProcessTree) -> None:
        try:
            is_gone = await self._end_with(tree, signal.SIGTERM, within=self._grace)
            if not is_gone:
                await self._end_with(tree, signal.SIGKILL, within=KILL_SECONDS)
        finally:
            self._release(tree)

    async def _end_with(self, tree: ProcessTree, number: signal.Signals, *, within: float) -> bool:
        """Send a signal to all processes of a tree. Return False if the tree has not ended after `within` seconds."""
        loop = asyncio.get_running_loop()
        give_up = loop.time() + within
        tree.signal(number)
        tree.signal(signal.SIGCONT)  # a stopped process does not handle SIGTERM
        signalled: set[int] = set()
        while True:
            members = self._members(tree)
            if self._has_ended(tree, members):
                return True
            if loop.time() >= give_up:
                return False
            for pid in (*tree.sandboxed(), *members):
                # Signal each process once, because some programs skip their cleanup after a second SIGTERM.
                if pid not in signalled:
                    _send(pid, number)
                    signalled.add(pid)
            if number is signal.SIGKILL:
                tree.signal(number)  # also reaches newly forked processes
            await asyncio.sleep(_CHECK_SECONDS)

    def _has_ended(self, tree: ProcessTree, members: set[int]) -> bool:
        return tree.exit_code is not None and not members and (self._can_adopt or not tree.has_group)

    def _members(self, tree: ProcessTree) -> set[int]:
        return self._scan().get(tree.pid, set())

    def _scan(self, *, is_urgent: bool = False) -> Families:
        """Reap dead orphans, kill living orphans, and return the living children of calls."""
        if not self._can_adopt:
            return {}
        families = self._descendants.scan(is_urgent=is_urgent)
        self._scanned_at = time.monotonic()
        orphans = families.get(ORPHAN, set())
        for pid in orphans:  # only this process reaps orphans, so their process ids are not reused
            _send(pid, signal.SIGKILL)
        # Count an orphan once, even if it takes several scans to die.
        self.orphans_killed += len(orphans - self._killed)
        self._killed = orphans
        return families

    async def _sweep_often(self) -> None:
        while True:
            before = self.orphans_killed
            self._scan()
            await asyncio.sleep(_KILLING_SECONDS if self.orphans_killed > before else SWEEP_SECONDS)

    def _release(self, tree: ProcessTree) -> None:
        if not self._has_ended(tree, set()):
            tree.signal(signal.SIGKILL)  # the task was cancelled, or a process hangs in the kernel
        # Forget the process id first, because it can be reused once `release` has reaped the leader.
        self._descendants.remove(tree.pid)
        if tree.is_lasting:
            self._death_guard.remove(tree.pid)
        self._trees.discard(tree)
        self._endings.pop(tree, None)
        tree.release()


def _send(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)
