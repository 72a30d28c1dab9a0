"""Finds the call that each of the daemon's children belongs to, and reaps zombies without a waiting parent.

As child subreaper the daemon inherits what its calls leave behind. What this process started itself, plugins' children
included (`StartedChildren`), is left to the code that started it.

As the first process of a container the daemon inherits what others start there (`docker exec`), too: the rest is
reaped there when it is dead, but not ended.
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
from gateway.executors.processes.process_table import MARKER, Child, ChildList, all_pids, child, marker_of
from gateway.executors.processes.started_children import STARTED

Families = Mapping[int, set[int]]
"""Living children by the process id of the leader of their tree."""

ORPHAN: Final = 0
"""Stands for the leader of children whose tree is gone."""
UNKNOWN: Final = -1
"""Stands for the leader of children that may belong to several trees, or to others."""
_CLAIM_SECONDS: Final = 60.0
"""How old a zombie is that nobody will reap any more."""
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
        self._candidates: dict[int, set[int]] = {}
        """Orphans that have hidden where they come from → leaders that ran when they were first seen."""
        self._unclaimed: dict[int, float] = {}
        """Zombies that may be a plugin's → when they were first seen."""
        self._secret = secrets.token_hex(8)
        self._numbers = count(1)
        self._children = ChildList()

    def close(self) -> None:
        """Close what is kept open for looks."""
        self._children.close()

    @property
    def prefix(self) -> str:
        """The common beginning of the markers of all calls."""
        return f"{STARTED.identity}.{self._secret}-"

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

    def look(self) -> Families:
        """Reap the dead, and return the living. Costs one small file where there are no children but leaders."""
        for _ in range(_ROUNDS):
            families, has_reaped = self._look_once()
            if not has_reaped:
                break  # else what a dead one left was inherited as it died, perhaps after the children were read
        self.living = sum(map(len, families.values()))
        return families

    def everybody(self) -> Iterator[int]:
        """Every process of the machine that carries one of our markers. Slow: looks at each."""
        return (pid for pid in all_pids() if (marker_of(pid) or "").startswith(self.prefix))

    def _look_once(self) -> tuple[Families, bool]:
        others = [pid for pid in self._children.pids() if pid not in self._leaders and pid not in STARTED]
        if not others:  # nearly always
            self._candidates.clear()
            self._unclaimed.clear()
            return {}, False
        families: defaultdict[int, set[int]] = defaultdict(set)
        children = [found for pid in others if (found := child(pid))]
        reaped = 0
        for each in children:
            if each.is_zombie:
                reaped += self._may_reap(each) and _reap(each.pid)
            elif (leader := self._leader_of(each)) is not None:
                families[leader].add(each.pid)
        self.reaped += reaped
        pids = {each.pid for each in children}
        self._candidates = {pid: leaders for pid, leaders in self._candidates.items() if pid in pids}
        self._unclaimed = {pid: since for pid, since in self._unclaimed.items() if pid in pids}
        return families, bool(reaped)

    def _may_reap(self, zombie: Child) -> bool:
        """Whether nobody awaits its exit status: an orphan's at once, another's when nobody has come for a minute."""
        if zombie.session != os.getsid(0) and not _is_started(zombie.pid):
            return True  # its parent is dead as well
        since = self._unclaimed.setdefault(zombie.pid, time.monotonic())
        return time.monotonic() - since >= _CLAIM_SECONDS

    def _leader_of(self, living: Child) -> int | None:
        """Return the leader of the call that a child belongs to; None where it is to be left alone. The order counts.

        1. one in the daemon's session, where no call's child is: None
        2. one with a call's traces, also while other code is starting children: that call's
        3. one that other code of this process has started, or may be starting right now: None
        4. any other hides where it comes from (`env -i setsid`): see `_last_candidate`
        """
        if living.session == os.getsid(0):
            return None
        marker = marker_of(living.pid) or ""
        leader = self._known_leader_of(living, marker)
        if leader is not None:
            return leader
        if _is_started(living.pid) or marker == STARTED.marker or marker.startswith(tuple(STARTED.prefixes)):
            return None
        return self._last_candidate(living.pid)

    def _known_leader_of(self, living: Child, marker: str) -> int | None:
        # A leader is not reaped as long as it is listed, unless by other code: its session's number is nobody else's.
        if living.session in self._leaders:
            return living.session
        if marker.startswith(self.prefix):
            # Ours, but of no tree that is listed: it has outlived its call.
            return next((leader for leader, own in self._leaders.items() if own == marker), ORPHAN)
        if self.cgroups is None:
            return None
        # Asked last, for it takes one more file for each process; it finds those, too, that cleared their environment.
        return next((leader for leader, own in self._places.items() if self.cgroups.holds(living.pid, own)), None)

    def _last_candidate(self, orphan: int) -> int:
        """The call of an orphan that hides: the last that still runs of those that ran when it was first seen.

        While several do it may be any's; once none does, it is killed.
        """
        # It may be a stranger's (`docker exec`): nothing is killed there on a guess.
        if os.getpid() == 1:
            return UNKNOWN
        candidates = self._candidates.setdefault(orphan, set(self._leaders))
        candidates.intersection_update(self._leaders)
        if len(candidates) > 1:
            return UNKNOWN
        return next(iter(candidates), ORPHAN)


def _is_started(pid: int) -> bool:
    return STARTED.is_starting or pid in STARTED  # in this order: one that was being started is recorded by then


def _reap(pid: int) -> bool:
    with suppress(ChildProcessError):
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    return False
