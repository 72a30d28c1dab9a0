"""Records the children that other code of this process starts: plugins and libraries, whose exit statuses are theirs.

Why: the daemon inherits what calls leave behind, and has to reap it at once; but nothing in the kernel tells an orphan
from a child that this process started itself. So each way to start one is observed: `subprocess.Popen` and
`os.posix_spawn` are wrapped, and what `os.fork` and uvloop start is found by the hooks of os.register_at_fork. An audit
hook would not tell the process id, and costs something at each audited event, such as opening a file. What a C
library forks by itself stays in the daemon's session, where nothing is ever ended or reaped in a hurry.

What those children start inherits the daemon's environment, and so a marker that no call has.
"""

import os
import secrets
import subprocess
import threading
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, Final, ParamSpec

from gateway.executors.processes.process_table import MARKER, child, own_identity

P = ParamSpec("P")


class StartedChildren:
    """Process ids of the children that this process started, from any thread, until they are reaped."""

    def __init__(self) -> None:
        self.identity = ""
        """The process's, once it watches."""
        self.marker = ""
        """Stands in the environment of what other code starts."""
        self.prefixes: set[str] = set()
        """The common beginnings of the markers of calls."""
        self._pids: set[int] = set()
        self._starting: set[int] = set()
        """Threads that are about to start one."""
        self._before_fork = threading.local()

    def watch(self) -> None:
        """Observe from now on. Children that exist already count as started by other code."""
        if self.identity:
            return
        self.identity = own_identity()
        self.marker = f"{self.identity}.{secrets.token_hex(8)}"
        os.environ[MARKER] = self.marker
        self._pids.update(_children_of_threads())
        subprocess.Popen.__init__ = self._observing_popen(subprocess.Popen.__init__)  # type: ignore[method-assign]
        for name in ("posix_spawn", "posix_spawnp"):
            if hasattr(os, name):
                setattr(os, name, self._observing(getattr(os, name)))
        os.register_at_fork(before=self._fork_begins, after_in_parent=self._forked)

    def __contains__(self, pid: int) -> bool:
        return pid in self._pids

    @property
    def is_starting(self) -> bool:
        """Whether a child may be there already that is not recorded yet."""
        return bool(self._starting)

    def discard(self, pid: int) -> None:
        """Forget one that was reaped."""
        self._pids.discard(pid)

    def forget_the_reaped(self) -> None:
        """Forget all that were: a process id that is free may become an orphan's."""
        self._pids.difference_update([pid for pid in tuple(self._pids) if child(pid) is None])

    def _observing_popen(self, original: Callable[..., None]) -> Callable[..., None]:
        @wraps(original)
        def init(popen: Any, *arguments: Any, **options: Any) -> None:
            thread = threading.get_ident()
            self._starting.add(thread)
            try:
                original(popen, *arguments, **options)
                # Before `discard` below: at each moment a child is either recorded, or being started.
                self._pids.add(popen.pid)
            finally:
                self._starting.discard(thread)

        return init

    def _observing(self, original: Callable[P, int]) -> Callable[P, int]:
        @wraps(original)
        def spawn(*arguments: P.args, **options: P.kwargs) -> int:
            thread = threading.get_ident()
            self._starting.add(thread)
            try:
                pid = original(*arguments, **options)
                self._pids.add(pid)
            finally:
                self._starting.discard(thread)
            return pid

        return spawn

    def _fork_begins(self) -> None:
        self._starting.add(threading.get_ident())
        # Of this thread alone: the kernel lists a child with the thread that forked it (proc_pid_task(5)).
        self._before_fork.children = _children_of_thread()

    def _forked(self) -> None:
        self._pids.update(_children_of_thread() - self._before_fork.children)
        self._starting.discard(threading.get_ident())


def _children_of_thread() -> set[int]:
    return _pids_in(Path("/proc/thread-self/children"))


def _children_of_threads() -> set[int]:
    return {pid for thread in Path("/proc/self/task").glob("*") for pid in _pids_in(thread / "children")}


def _pids_in(file: Path) -> set[int]:
    try:
        return {int(pid) for pid in file.read_bytes().split()}
    except OSError:
        return set()


STARTED: Final = StartedChildren()
"""A process has one set of children, and so one record of them, whatever runs in it."""
