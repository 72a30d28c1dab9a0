"""Notices when other code of this process, such as a plugin, starts a child.

Nothing in the kernel tells an orphan that the daemon has inherited from a child that a plugin has started. So a child
that appears is taken for an orphan only if no other code has started one since the last look.
"""

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

_AUDITED: Final = frozenset({"subprocess.Popen", "os.posix_spawn", "os.fork", "os.forkpty"})
"""https://docs.python.org/3/library/audit_events.html"""


class OtherStarts:
    """Counts starts of children in this process, from any thread. Its hooks stay as long as the process."""

    def __init__(self) -> None:
        self.count = 0
        """Starts by other code so far."""
        self._is_watching = False
        self._starts_own: int | None = None
        """The thread that is starting a process of a call."""

    def watch(self) -> None:
        if not self._is_watching:
            self._is_watching = True
            sys.addaudithook(self._audited)
            os.register_at_fork(before=self._count)  # uvloop's, which raise no audit event

    @contextmanager
    def own(self) -> Iterator[None]:
        """Do not count what this thread starts within the context."""
        self._starts_own = threading.get_ident()
        try:
            yield
        finally:
            self._starts_own = None

    def _audited(self, event: str, _arguments: tuple[Any, ...]) -> None:
        if event in _AUDITED:
            self._count()

    def _count(self) -> None:
        if threading.get_ident() != self._starts_own:
            self.count += 1


OTHER_STARTS: Final = OtherStarts()
"""A process has one set of hooks, whatever runs in it."""


def children_of_threads() -> set[int]:
    """Return the children of all threads: each is listed with the thread that started it (proc_pid_task(5))."""
    found: set[int] = set()
    for file in Path("/proc/self/task").glob("*/children"):
        try:
            found.update(map(int, file.read_bytes().split()))
        except OSError:  # the thread has ended
            continue
    return found
