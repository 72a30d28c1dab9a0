"""Finds the call that each of the daemon's children belongs to, and reaps zombies without a waiting parent.

As child subreaper the daemon inherits what its calls leave behind. Children that other code of this process may have
started, such as plugins (`OtherStarts`), are left to that code.

As the first process of a container the daemon inherits what others start there (`docker exec`), too: without a trace of
a call it is reaped when it is dead, but not ended.
"""

import os
import secrets
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import count
from typing import Final

from gateway.processes.cgroups import Cgroup, Cgroups
from gateway.processes.other_children import OTHER_STARTS, children_of_threads
from gateway.processes.process_table import MARKER, Child, ChildList, all_pids, child, marker_of, own_identity

Families = Mapping[int, set[int]]
"""Living children by the process id of the leader of their tree."""

ORPHAN: Final = 0
"""Stands for the leader of children whose tree is gone."""
UNKNOWN: Final = -1
"""Stands for the leader of children that may belong to several trees."""
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
        self._others: set[int] = set()
        """Children that other code may have started."""
        self._other_starts = -1
        """Their number at the last look."""
        self._candidates: dict[int, set[int]] = {}
        """Orphans that have hidden where they come from → leaders that ran when they were first seen."""
        self._identity = self._prefix = ""
        self._numbers = count(1)
        self._children = ChildList()

    def open(self, *, with_cgroups: bool) -> None:
        """Find out what this process is called, and make room for the cgroups of its calls where that is allowed."""
        self._identity = own_identity()
        secret = secrets.token_hex(8)
        self._prefix = f"{self._identity}.{secret}-"
        os.environ[MARKER] = f"{self._identity}.{secret}"  # inherited by what other code of this process starts
        self.cgroups = Cgroups.open(self._identity) if with_cgroups else None
        OTHER_STARTS.watch()

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
        if OTHER_STARTS.count != self._other_starts:
            self._other_starts = OTHER_STARTS.count
            # Those of threads, too: the main thread inherits them when their thread ends.
            self._others = children_of_threads() - self._leaders.keys() - self._seen - self._candidates.keys()
        others = [pid for pid in self._children.pids() if pid not in self._leaders]
        if not others:  # nearly always
            for known in (self._seen, self._unclaimed, self._candidates):
                known.clear()
            return {}, False
        families: defaultdict[int, set[int]] = defaultdict(set)
        children = [found for pid in others if (found := child(pid))]
        reaped = 0
        for each in children:
            if each.is_zombie:
                reaped += self._may_reap(each, claim_seconds) and _reap(each.pid)
            elif (leader := self._leader_of(each)) is not None:
                families[leader].add(each.pid)
                if leader != UNKNOWN:
                    self._seen.add(each.pid)
        self.reaped += reaped
        pids = {each.pid for each in children}
        self._seen &= pids
        self._unclaimed = {pid: since for pid, since in self._unclaimed.items() if pid in pids}
        self._candidates = {pid: leaders for pid, leaders in self._candidates.items() if pid in pids}
        return families, bool(reaped)

    def _may_reap(self, zombie: Child, claim_seconds: float) -> bool:
        """Whether no code of this process waits for its exit status.

        A call's at once; one that may be a plugin's when it has not been waited for in a while.
        """
        if zombie.pid in self._seen or zombie.session in self._leaders or zombie.pid not in self._others:
            return True
        since = self._unclaimed.setdefault(zombie.pid, time.monotonic())
        return time.monotonic() - since >= claim_seconds

    def _leader_of(self, living: Child) -> int | None:
        """Return the leader of the call that a child belongs to; None for a child that is no call's. The order counts.

        1. one in the daemon's session, where no call's child is: None
        2. one with the session, marker or cgroup of a call: that call's
        3. one that other code may have started, or that inherited this process's environment: None
        4. any other hides where it comes from (`env -i setsid`): see `_last_candidate`
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
        if self.cgroups is not None:
            # Asked last, as it takes a file for each process. It finds those that cleared their environment.
            for leader, own in self._places.items():
                if self.cgroups.holds(living.pid, own):
                    return leader
        if living.pid in self._others or marker.startswith(f"{self._identity}."):
            return None
        return self._last_candidate(living.pid)

    def _last_candidate(self, orphan: int) -> int | None:
        """The call of an orphan that hides: the last that still runs of those that ran when it was first seen.

        While several do it may be any's; once none does, it is killed.
        """
        # It may be a stranger's (`docker exec`): nothing is killed there on a guess.
        if os.getpid() == 1:
            return None
        candidates = self._candidates.setdefault(orphan, set(self._leaders))
        candidates.intersection_update(self._leaders)
        if len(candidates) > 1:
            return UNKNOWN
        return next(iter(candidates), ORPHAN)


def _reap(pid: int) -> bool:
    with suppress(ChildProcessError):
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    return False
