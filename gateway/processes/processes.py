"""Runs the commands of calls, and ends everything that they started.

A call ends when its main process ends: its pipes are read a moment longer, and what is left of its tree is ended, with
TERM, a grace period, and KILL. At the deadline the call is answered at once; the ending goes on in a task that
`Processes` owns, and the call's permit is held until it is done. `Descendants` knows what belongs to a tree, and so
does the tree's control group (`Cgroups`) where there can be one.

Orphans are reaped, or killed once their call has ended: as calls end, twice a second by a task, before a start unless
that was done just now, and when a start finds no process left, which is tried once more. Why not on SIGCHLD: it would
wake the daemon once more for each call, and a loop outside the main thread does not get it.
"""

import asyncio
import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from itertools import chain, repeat
from typing import Final, Self

import structlog

from gateway.deadline import DeadlineExceededError
from gateway.errors import ExecutionError
from gateway.permit import Permit
from gateway.processes.cgroups import Cgroup
from gateway.processes.descendants import ORPHAN, Descendants, Families
from gateway.processes.leftovers import DeathGuard, end_leftovers
from gateway.processes.other_children import OTHER_STARTS
from gateway.processes.process_table import become_subreaper
from gateway.processes.process_tree import NOWHERE, Command, ProcessTree, Sinks
from gateway.processes.spawner import NoProcessError, Spawner

log: Final = structlog.get_logger()

KILL_SECONDS: Final = 5.0
"""The longest wait for a killed tree: a process may hang in the kernel for ever."""
SWEEP_SECONDS: Final = 0.5
"""Between looks at what calls have left behind."""
_KILLING_SECONDS: Final = 0.02
"""The same while orphans are being killed."""
_LOOKS_AT_EXIT: Final = 50
"""Number of looks for orphans at exit: one that may not be killed, such as sudo's, stays."""
_RECENT_SECONDS: Final = 0.1
"""The greatest age of the last look when a command is started."""
_PAUSES: Final = (0.005, 0.01, 0.02, 0.05)
"""Seconds between looks at a tree that is being ended; then 0.1."""


def _nothing() -> None:
    pass


class Processes:
    """Runs commands, and leaves no process behind: `async with Processes() as processes`."""

    def __init__(self, *, grace_seconds: float = 5.0, claim_seconds: float = 10.0, with_cgroups: bool = True) -> None:
        """Do nothing yet. `claim_seconds`: see `Descendants.look`."""
        self._grace = grace_seconds
        self._claim_seconds = claim_seconds
        self._with_cgroups = with_cgroups
        self._descendants = Descendants()
        self._death_guard = DeathGuard()
        self._can_adopt = False
        self._killed: set[int] = set()
        self.orphans_killed = 0
        """Orphans that outlived their call and were killed for it, so far."""
        self._looked_at = 0.0
        self._sweeping: asyncio.Task[None] | None = None
        self._trees: set[ProcessTree] = set()
        self._endings: dict[ProcessTree, asyncio.Task[None]] = {}
        self._spawner = Spawner()
        self._is_closed = False

    async def __aenter__(self) -> Self:
        self._can_adopt = become_subreaper()
        self._spawner.open()
        # Before `open` replaces the marker in os.environ, by which a daemon that a call has started knows itself.
        if left := end_leftovers():
            log.warning("ended what calls of a killed daemon had left running", processes=left)
        self._descendants.open(with_cgroups=self._with_cgroups)
        self._sweeping = asyncio.create_task(self._sweep_often(), name="reap orphans")
        return self

    async def __aexit__(self, *_: object) -> None:
        """End every tree, even those that a call still waits for, within the grace and a little."""
        self._is_closed = True
        for tree in self._trees:
            self._end_later(tree)
        if self._endings:
            # Not gather: that would raise what one ending raises, while the others still run.
            await asyncio.wait(self._endings.values())
        if self._sweeping is not None:
            self._sweeping.cancel()
            await asyncio.wait([self._sweeping])
        # After the trees, which it guards until they are gone.
        self._death_guard.stop()
        for _look in range(_LOOKS_AT_EXIT):
            if not self._look().get(ORPHAN):
                break
            await asyncio.sleep(_KILLING_SECONDS)
        self._descendants.close()
        self._spawner.close()

    def kill_all(self) -> None:
        """Kill what can be reached at once, from any thread: the daemon is about to exit."""
        self._is_closed = True
        # A copy, for the loop's thread may change the set meanwhile.
        for tree in tuple(self._trees):
            tree.signal(signal.SIGKILL)
        if self._descendants.cgroups is not None:
            self._descendants.cgroups.kill()
        for pid in self._descendants.everybody():  # those that left their group, too
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)

    @property
    def running(self) -> int:
        """Trees whose call has not been answered yet."""
        return len(self._trees) - len(self._endings)

    @property
    def ending(self) -> int:
        """Trees that are being ended."""
        return len(self._endings)

    @property
    def orphans(self) -> int:
        """Living children without a parent of their own, when that was last looked at."""
        return self._descendants.living

    @property
    def orphans_reaped(self) -> int:
        """Orphans that ended by themselves or were ended, so far."""
        return self._descendants.reaped

    @property
    def told_by(self) -> str:
        """The means by which processes of a call are recognised: `cgroup`, `marker`, or their process `group` alone."""
        if self._descendants.cgroups is not None:
            return "cgroup"
        return "marker" if self._can_adopt else "group"

    async def run(
        self,
        command: Command,
        *,
        deadline: float,
        permit: Permit,
        sinks: Sinks = NOWHERE,
        afterwards: Callable[[], None] = _nothing,
    ) -> int:
        """Run a command and return its exit code, or the negative number of the signal that ended it.

        What it writes goes to the sinks as it comes. `afterwards` is called when the whole tree is gone.

        Raises:
            DeadlineExceededError: it still ran at the deadline, which is on the loop's clock.
            ExecutionError: it could not be started.
        """
        began = asyncio.get_running_loop().time()
        try:
            tree = self._start(command, deadline=deadline, sinks=sinks, afterwards=afterwards)
        except BaseException:
            # There is no tree whose `release` would call it.
            afterwards()
            raise
        try:
            tree.start()
            await tree.wait(deadline=deadline)
            if tree.exit_code is None:
                raise DeadlineExceededError(repr(command.argv[0]), deadline - began)
            return tree.exit_code
        finally:
            # Also for a cancelled call: its receiver should stop processing and free what it holds (MCP 2025-11-25
            # basic/utilities/cancellation).
            self._finish(tree, permit)

    def _start(self, command: Command, *, deadline: float, sinks: Sinks, afterwards: Callable[[], None]) -> ProcessTree:
        if self._is_closed:
            raise ExecutionError("the server is stopping")
        if asyncio.get_running_loop().time() >= deadline:
            raise DeadlineExceededError(f"{command.argv[0]!r}, not started yet,", 0.0)
        if time.monotonic() - self._looked_at > _RECENT_SECONDS:
            self._look()
        if command.lasting_input is not None:
            # Before the child, which is then never without a guard.
            self._death_guard.start(self._descendants.prefix)
        marker = self._descendants.new_marker()
        with OTHER_STARTS.own():
            try:
                tree = self._spawner.start(command, marker=marker, sinks=sinks, afterwards=afterwards)
            except NoProcessError:
                self._look(is_urgent=True)
                tree = self._spawner.start(command, marker=marker, sinks=sinks, afterwards=afterwards)
        # No await between the start and `add`: a look would take what the child has forked for orphans, and kill it.
        tree.cgroup = self._confine(tree.pid)
        self._descendants.add(tree.pid, marker, tree.cgroup)
        self._trees.add(tree)
        return tree

    def _confine(self, leader: int) -> Cgroup | None:
        cgroups = self._descendants.cgroups
        cgroup = None if cgroups is None else cgroups.take()
        if cgroups is not None and cgroup is not None and not cgroup.add(leader):
            cgroups.give_back(cgroup, is_empty=True)
            return None
        return cgroup

    def _finish(self, tree: ProcessTree, permit: Permit) -> None:
        """Let go of a tree that is gone; otherwise end it while its permit is held."""
        if tree not in self._trees:
            return  # ended on exit, while the call still waited
        if tree not in self._endings and tree.exit_code is not None and not self._members(tree):
            self._release(tree, is_gone=True)
        else:
            tree.stop_pipes()
            permit.hold_until_done(self._end_later(tree))

    def _end_later(self, tree: ProcessTree) -> asyncio.Task[None]:
        if tree not in self._endings:
            self._endings[tree] = asyncio.create_task(self._end(tree), name=f"end process tree {tree.pid}")
        return self._endings[tree]

    async def _end(self, tree: ProcessTree) -> None:
        is_gone = False
        try:
            is_gone = await self._ended_by(tree, signal.SIGTERM, within=self._grace)
            is_gone = is_gone or await self._ended_by(tree, signal.SIGKILL, within=KILL_SECONDS)
        finally:
            self._release(tree, is_gone=is_gone)

    async def _ended_by(self, tree: ProcessTree, number: signal.Signals, *, within: float) -> bool:
        """Signal the tree until it is gone, which is to happen within so many seconds."""
        loop = asyncio.get_running_loop()
        give_up = loop.time() + within
        tree.signal(number)
        tree.signal(signal.SIGCONT)  # a stopped process hears no TERM
        signalled: set[int] = set()
        for pause in chain(_PAUSES, repeat(0.1)):
            members = self._members(tree)
            if tree.exit_code is not None and not members:
                return True
            if loop.time() >= give_up:
                return False
            for pid in (*tree.kept(), *members):
                # Once each: some programs take a second TERM as the order to skip their cleanup.
                if pid not in signalled:
                    _send(pid, number)
                    signalled.add(pid)
            if number is signal.SIGKILL:
                tree.signal(number)  # also what was forked in between
                if tree.cgroup is not None:
                    tree.cgroup.kill()
            await asyncio.sleep(pause)
        raise AssertionError("repeat never ends")

    def _members(self, tree: ProcessTree) -> set[int]:
        """The processes that belong to the tree, its leader and, while that lives, its group apart."""
        confined = {pid for pid in tree.confined() if tree.exit_code is not None or _group(pid) != tree.pid}
        return self._look().get(tree.pid, set()) | confined

    def _look(self, *, is_urgent: bool = False) -> Families:
        """Reap dead orphans, and kill living ones. Those are not reaped yet, so their ids are still theirs."""
        families = self._descendants.look(claim_seconds=0 if is_urgent else self._claim_seconds)
        self._looked_at = time.monotonic()
        orphans = families.get(ORPHAN, set())
        for pid in orphans:
            _send(pid, signal.SIGKILL)
        # One that takes several looks to die is counted once.
        self.orphans_killed += len(orphans - self._killed)
        self._killed = orphans
        return families

    async def _sweep_often(self) -> None:
        while True:
            before = self.orphans_killed
            self._look()
            await asyncio.sleep(_KILLING_SECONDS if self.orphans_killed > before else SWEEP_SECONDS)

    def _release(self, tree: ProcessTree, *, is_gone: bool) -> None:
        if tree.exit_code is None:
            tree.signal(signal.SIGKILL)  # the ending was cancelled, or it hangs in the kernel
        # Before `release` reaps the leader: a listed id must not become another process's.
        self._descendants.remove(tree.pid)
        self._trees.discard(tree)
        self._endings.pop(tree, None)
        tree.release()
        if self._descendants.cgroups is not None and tree.cgroup is not None:
            self._descendants.cgroups.give_back(tree.cgroup, is_empty=is_gone)


def _send(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def _group(pid: int) -> int | None:
    with suppress(OSError):
        return os.getpgid(pid)
    return None
