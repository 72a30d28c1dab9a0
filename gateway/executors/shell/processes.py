"""The children of the daemon: started, watched, and ended with everything that they started.

A call ends when its main process ends: its pipes are read a moment more, and whatever is left of its tree is ended,
with TERM, a grace, and KILL. At the deadline the caller hears at once; the ending goes on in a task that `Processes`
owns, and the caller's slot is held until it is done. What belongs to a tree, `Descendants` knows.
"""

import asyncio
import os
import signal
from collections.abc import Callable
from contextlib import suppress
from itertools import chain, repeat
from typing import Final, Self

from gateway.errors import ExecutionError
from gateway.executors.invocation import Slot
from gateway.executors.shell.descendants import STRAY, Descendants
from gateway.executors.shell.process_table import become_subreaper
from gateway.executors.shell.process_tree import NOWHERE, Command, Sinks, Tree, start

LINGER_SECONDS: Final = 0.1
"""How long the pipes are read after the main process has ended."""
KILL_SECONDS: Final = 5.0
"""How long to wait for a killed tree: a process may hang in the kernel for ever."""
_PAUSES: Final = (0.005, 0.01, 0.02, 0.05)
"""Seconds between looks at a tree that is being ended; then 0.1."""


class DeadlineError(ExecutionError):
    """The child still ran when the answer was due."""


def _nothing() -> None:
    pass


class Processes:
    """Runs commands, and leaves nothing behind: `async with Processes() as processes`."""

    def __init__(self, *, grace_seconds: float = 5.0, patience_seconds: float = 60.0) -> None:
        self._grace = grace_seconds
        self._descendants = Descendants(patience_seconds=patience_seconds)
        self._trees: set[Tree] = set()
        self._endings: dict[Tree, asyncio.Task[None]] = {}
        self._is_closed = False

    async def __aenter__(self) -> Self:
        become_subreaper()
        return self

    async def __aexit__(self, *_: object) -> None:
        """End every tree, even those that a call still waits for, within the grace and a little."""
        self._is_closed = True
        for tree in self._trees:
            self._end_later(tree)
        if self._endings:
            await asyncio.wait(self._endings.values())

    def kill_all(self) -> None:
        """Kill what can be reached at once, from any thread: the daemon is about to go without further ado."""
        self._is_closed = True
        for tree in tuple(self._trees):
            tree.signal(signal.SIGKILL)
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

    async def run(
        self,
        command: Command,
        *,
        deadline: float,
        slot: Slot,
        sinks: Sinks = NOWHERE,
        afterwards: Callable[[], None] = _nothing,
    ) -> int:
        """Run a command and return its exit code, or the negative number of the signal that ended it.

        What it writes goes to the sinks as it comes. `afterwards` is called when the whole tree is gone.

        Raises:
            DeadlineError: it still ran at the deadline, which is on the loop's clock.
            ExecutionError: it could not be started.
        """
        began = asyncio.get_running_loop().time()
        try:
            tree = self._start(command, deadline=deadline, sinks=sinks, afterwards=afterwards)
        except BaseException:
            afterwards()
            raise
        try:
            tree.start()
            await asyncio.wait([tree.exited], timeout=max(0.0, deadline - began))
            if not tree.exited.done():
                raise DeadlineError(f"{command.argv[0]!r} was ended: it took longer than {deadline - began:.1f} s")
            await asyncio.wait([tree.drained], timeout=LINGER_SECONDS)
            return tree.exited.result()
        finally:
            self._finish(tree, slot)

    def _start(self, command: Command, *, deadline: float, sinks: Sinks, afterwards: Callable[[], None]) -> Tree:
        if self._is_closed:
            raise ExecutionError("the server is stopping")
        if asyncio.get_running_loop().time() >= deadline:
            raise DeadlineError(f"{command.argv[0]!r} was not started: the time was over already")
        marker = self._descendants.new_marker()
        tree = start(command, marker=marker, sinks=sinks, afterwards=afterwards)
        self._descendants.add(tree.pid, marker)
        self._trees.add(tree)
        return tree

    def _finish(self, tree: Tree, slot: Slot) -> None:
        """Let go of a tree that is gone; otherwise end it while the slot is held."""
        if tree not in self._trees:
            return  # ended on exit, while the call still waited
        tree.stop_pipes()
        if tree not in self._endings and tree.exited.done() and not self._members(tree):
            self._release(tree)
        else:
            slot.hold_until(self._end_later(tree))

    def _end_later(self, tree: Tree) -> asyncio.Task[None]:
        if tree not in self._endings:
            self._endings[tree] = asyncio.create_task(self._end(tree), name=f"end process tree {tree.pid}")
        return self._endings[tree]

    async def _end(self, tree: Tree) -> None:
        try:
            if not await self._ended_by(tree, signal.SIGTERM, within=self._grace):
                await self._ended_by(tree, signal.SIGKILL, within=KILL_SECONDS)
        finally:
            self._release(tree)

    async def _ended_by(self, tree: Tree, number: signal.Signals, *, within: float) -> bool:
        """Signal the tree until it is gone, which is to happen within so many seconds."""
        loop = asyncio.get_running_loop()
        give_up = loop.time() + within
        tree.signal(number)
        tree.signal(signal.SIGCONT)  # a stopped process hears no TERM
        told: set[int] = set()
        for pause in chain(_PAUSES, repeat(0.1)):
            members = self._members(tree)
            if tree.exited.done() and not members:
                return True
            if loop.time() >= give_up:
                return False
            for pid in (*members, *tree.kept()):
                if pid not in told:
                    _send(pid, number)
                    told.add(pid)
            if number is signal.SIGKILL:
                tree.signal(number)  # whoever was forked in between
            await asyncio.sleep(pause)
        raise AssertionError("repeat never ends")

    def _members(self, tree: Tree) -> set[int]:
        """The children that belong to the tree, its leader apart. Not reaped yet, so their ids are still theirs."""
        families = self._descendants.look()
        for pid in families.get(STRAY, ()):
            _send(pid, signal.SIGKILL)
        return families.get(tree.pid, set())

    def _release(self, tree: Tree) -> None:
        if not tree.exited.done():
            tree.signal(signal.SIGKILL)  # the ending was cancelled, or it hangs in the kernel
        self._descendants.remove(tree.pid)
        self._trees.discard(tree)
        self._endings.pop(tree, None)
        tree.release()


def _send(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)
