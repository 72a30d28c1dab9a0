"""Finds the call that each of the daemon's children belongs to, and reaps zombies without a waiting parent.

As child subreaper the daemon inherits what its calls leave behind. Children that other code of this process started,
such as plugins, are left to that code, and so is a process that left its call's session and cleared its environment:
without a cgroup nothing tells whose it is.
"""

import os
import secrets
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import count
from typing import Final

from gateway.executors.processes.cgroups import Cgroup, Cgroups
from gateway.executors.processes.process_table import MARKER, Child, ChildList, all_pids, child, marker_of, own_identity

Families = Mapping[int, set[int]]
"""Living children by the process id of the leader of their tree."""

ORPHAN: Final = 0
"""Stands for the leader of children whose tree is gone."""
_ROUNDS: Final = 8
"""The maximal number of looks in a row: a process that forks and ends, again and again, would keep it busy."""


class Descendants:
    """Knows the leaders of all trees, and finds their descendants among the daemon's children."""

    def __init__(self) -> None:
        self.cgroups: Cgroups | None = None
        """The control groups of calls, where there can be any."""
        self.reaped = 0
        """Orphans so far."""
        self.living = 0
        """Orphans that the last look has found."""
        self._leaders: dict[int, str] = {}
        """Process id, which is the session's too → marker."""
        self._places: dict[int, Cgroup] = {}
        self._seen: set[int] = set()
        """Children that a look has found to be a call's."""
        self._unclaimed: dict[int, float] = {}
        """Zombies that may be a plugin's → when they were first seen."""
        self._prefix = ""
        self._numbers = count(1)
        self._children = ChildList()

    def open(self, *, with_cgroups: bool) -> None:
        """Find out what this process is called, and make room for the cgroups of its calls where that is allowed."""
        identity = own_identity()
        self._prefix = f"{identity}.{secrets.token_hex(8)}-"
        self.cgroups = Cgroups.open(identity) if with_cgroups else None

    def close(self) -> None:
        """Remove the cgroups, and close what is kept open for looks."""
        if self.cgroups is not None:
            self.cgroups.close()
        self._children.close()

    @property
    def prefix(self) -> str:
        """The common beginning of the markers of all calls."""
        return self._prefix

    def new_marker(self) -> Mapping[str, str]:
        """Return the environment variable by which the next tree will be known."""
        return {MARKER: f"{self.prefix}{next(self._numbers)}"}

    def add(self, leader: int, marker: Mapping[str, str], cgroup: Cgroup | None) -> None:
        self._leaders[leader] = marker[MARKER]
        if cgroup is not None:
            self._places[leader] = cgroup

    def remove(self, leader: int) -> None:
        del self._leaders[leader]
        self._places.pop(leader, None)

    def look(self, *, claim_seconds: float) -> Families:
        """Reap the dead, and return the living. Costs one small file where there are no children but leaders.

        `claim_seconds`: how long a zombie that may be a plugin's is left to the plugin. One that asks later gets no
        exit status.
        """
        for _ in range(_ROUNDS):
            families, has_reaped = self._look_once(claim_seconds)
            if not has_reaped:
                break  # else what a dead one left was inherited as it died, perhaps after the children were read
        self.living = sum(map(len, families.values()))
        return families

    def everybody(self) -> Iterator[int]:
        """Every process of the machine that carries one of our markers. Slow: looks at each."""
        return (pid for pid in all_pids() if (marker_of(pid) or "").startswith(self.prefix))

    def _look_once(self, claim_seconds: float) -> tuple[Families, bool]:
        others = [pid for pid in self._children.pids() if pid not in self._leaders]
        if not others:  # nearly always
            self._seen.clear()
            self._unclaimed.clear()
            return {}, False
        families: defaultdict[int, set[int]] = defaultdict(set)
        children = [found for pid in others if (found := child(pid))]
        reaped = 0
        for each in children:
            if each.is_zombie:
                reaped += self._may_reap(each, claim_seconds) and _reap(each.pid)
            elif (leader := self._leader_of(each)) is not None:
                families[leader].add(each.pid)
                self._seen.add(each.pid)
        self.reaped += reaped
        pids = {each.pid for each in children}
        self._seen &= pids
        self._unclaimed = {pid: since for pid, since in self._unclaimed.items() if pid in pids}
        return families, bool(reaped)

    def _may_reap(self, zombie: Child, claim_seconds: float) -> bool:
        """Whether no code of this process waits for its exit status.

        A call's at once; any other, which may be a plugin's, when it has not been waited for in a while.
        """
        if zombie.pid in self._seen or zombie.session in self._leaders:
            return True
        since = self._unclaimed.setdefault(zombie.pid, time.monotonic())
        return time.monotonic() - since >= claim_seconds

    def _leader_of(self, living: Child) -> int | None:
        """Return the leader of the call that a child belongs to; None for a child that is no call's.

        A child belongs to the call whose session, marker or cgroup it has.
        """
        if living.session == os.getsid(0):
            return None
        # A leader is not reaped as long as it is listed, unless by other code: its session's number is nobody else's.
        if living.session in self._leaders:
            return living.session
        marker = marker_of(living.pid) or ""
        if marker.startswith(self.prefix):
            # Ours, but of no tree that is listed: it has outlived its call.
            return next((leader for leader, own in self._leaders.items() if own == marker), ORPHAN)
        if self.cgroups is None:
            return None
        # Asked last, for it takes one more file for each process; it finds those, too, that cleared their environment.
        return next((leader for leader, own in self._places.items() if self.cgroups.holds(living.pid, own)), None)


def _reap(pid: int) -> bool:
    with suppress(ChildProcessError):
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    return False
