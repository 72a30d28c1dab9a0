"""Tell whose the daemon's children are: those that began in a call's session, or carry its marker, belong to its tree.

Statuses of children that are not ours are never taken from who waits for them. A dead child is reaped if it belonged to
the session of a tree, or to one in which a process with our marker was seen alive. One that did neither may be the
short-lived grandchild of a call, or the child of a plugin: it is reaped when nobody else has done so for a minute.
"""

import os
import secrets
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import count
from typing import Final

from gateway.executors.shell.process_table import MARKER, Child, all_pids, child, child_pids, marker_of

Families = Mapping[int, set[int]]
"""Living children by the process id of the leader of their tree."""

STRAY: Final = 0
"""Stands for the leader of children whose tree is gone."""


class Descendants:
    """Knows the leaders of all trees, and finds their descendants among the daemon's children."""

    def __init__(self, *, patience_seconds: float) -> None:
        self._patience = patience_seconds
        self._leaders: dict[int, str] = {}
        """Process id, which is the session's too → marker."""
        self._sessions: set[int] = set()
        """Those of children with our marker, since there was last a child of them."""
        self._unclaimed: dict[int, float] = {}
        """Zombies that may be a plugin's → when they were first seen."""
        self._prefix = secrets.token_hex(8)
        self._numbers = count(1)

    def new_marker(self) -> Mapping[str, str]:
        """Return the environment variable by which the next tree will be known."""
        return {MARKER: f"{self._prefix}-{next(self._numbers)}"}

    def add(self, leader: int, marker: Mapping[str, str]) -> None:
        self._leaders[leader] = marker[MARKER]

    def remove(self, leader: int) -> None:
        del self._leaders[leader]

    def look(self) -> Families:
        """Reap the dead, and return the living. Costs one small file where there are no children but leaders."""
        families, has_reaped = self._look_once()
        while (
            has_reaped
        ):  # what a dead one leaves is inherited as it dies, perhaps after its parent's children were read
            families, has_reaped = self._look_once()
        return families

    def _look_once(self) -> tuple[Families, bool]:
        families: defaultdict[int, set[int]] = defaultdict(set)
        children = [found for pid in child_pids() if pid not in self._leaders and (found := child(pid))]
        for each in children:
            if not each.is_zombie and (leader := self._leader_of(each)) is not None:
                families[leader].add(each.pid)
        reaped = [each.pid for each in children if each.is_zombie and self._is_to_be_reaped(each) and _reap(each.pid)]
        self._sessions &= {each.session for each in children}
        self._unclaimed = {each.pid: self._unclaimed[each.pid] for each in children if each.pid in self._unclaimed}
        return families, bool(reaped)

    def everybody(self) -> Iterator[int]:
        """Every process of the machine that carries one of our markers. Slow: looks at each."""
        return (pid for pid in all_pids() if (marker_of(pid) or "").startswith(self._prefix))

    def _leader_of(self, living: Child) -> int | None:
        marker = marker_of(living.pid)
        if marker is not None and marker.startswith(self._prefix):
            self._sessions.add(living.session)
            return next((leader for leader, own in self._leaders.items() if own == marker), STRAY)
        return living.session if living.session in self._leaders else None

    def _is_to_be_reaped(self, zombie: Child) -> bool:
        if zombie.session == os.getsid(0):
            return False  # a plugin's, who will wait for it
        if zombie.session in self._leaders or zombie.session in self._sessions:
            return True
        since = self._unclaimed.setdefault(zombie.pid, time.monotonic())
        return time.monotonic() - since >= self._patience


def _reap(pid: int) -> bool:
    with suppress(ChildProcessError):
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    return False
