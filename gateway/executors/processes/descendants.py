"""Finds the call that each of the daemon's children belongs to, and reaps zombies without a waiting parent.

As child subreaper the daemon inherits what its calls leave behind. What this process started itself, plugins' children
included (`StartedChildren`), is left to the code that started it; `classify` tells the others apart.

As the first process of a container the daemon inherits what others start there (`docker exec`), too: the rest is
reaped there when it is dead, but not ended.
"""

import os
import secrets
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from enum import Enum
from itertools import count
from typing import Final

import msgspec

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


class Kind(Enum):
    """A child's relation to the daemon and its calls."""

    OWN = "in the daemon's session, where no call's child is, or started by other code of this process: left alone"
    DEAD = "the same, but dead: reaped if nobody has done so for a minute, since then nobody ever will"
    DEAD_ORPHAN = "dead, in another session: reaped at once, since its parent is dead as well"
    OF_CALL = "started by a call"
    HIDDEN = "an orphan that has hidden where it comes from (`env -i setsid`): see `_last_candidate`"


class Traces(msgspec.Struct, frozen=True, kw_only=True):
    """The facts of a child that tell where it comes from."""

    is_dead: bool = False
    shares_session: bool = False
    """Whether it is in the daemon's session."""
    is_of_call: bool = False
    """Whether it has a call's marker, or is in the session of a call's first process, or in its cgroup."""
    is_started: bool = False
    """Whether other code of this process has started it, or may be doing so right now."""


def classify(traces: Traces) -> Kind:
    """Tell what a child is. Pure; the order counts.

    1. one that is dead: `DEAD` if its exit status may be awaited, else `DEAD_ORPHAN`
    2. one in the daemon's session: `OWN`
    3. one with a call's traces: `OF_CALL`, also while other code is starting children
    4. one that other code has started: `OWN`
    5. any other: `HIDDEN`
    """
    if traces.is_dead:
        return Kind.DEAD if traces.shares_session or traces.is_started else Kind.DEAD_ORPHAN
    if traces.shares_session:
        return Kind.OWN
    if traces.is_of_call:
        return Kind.OF_CALL
    return Kind.OWN if traces.is_started else Kind.HIDDEN


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
            kind, leader = self._look_at(each)
            if kind is Kind.DEAD_ORPHAN or (kind is Kind.DEAD and self._is_unclaimed(each.pid)):
                reaped += _reap(each.pid)
            elif kind is Kind.OF_CALL:
                families[leader].add(each.pid)
            elif kind is Kind.HIDDEN:
                families[self._last_candidate(each.pid)].add(each.pid)
        self.reaped += reaped
        pids = {each.pid for each in children}
        self._candidates = {pid: leaders for pid, leaders in self._candidates.items() if pid in pids}
        self._unclaimed = {pid: since for pid, since in self._unclaimed.items() if pid in pids}
        return families, bool(reaped)

    def _look_at(self, each: Child) -> tuple[Kind, int]:
        """Return what a child is, and the leader of the call that it belongs to."""
        shares_session = each.session == os.getsid(0)
        if each.is_zombie or shares_session:  # neither marker nor cgroup would tell more
            traces = Traces(is_dead=each.is_zombie, shares_session=shares_session, is_started=_is_started(each.pid))
            return classify(traces), ORPHAN
        marker = marker_of(each.pid) or ""
        leader = self._known_leader_of(each, marker)
        is_marked = marker == STARTED.marker or marker.startswith(tuple(STARTED.prefixes))
        is_started = _is_started(each.pid) or is_marked
        return classify(Traces(is_of_call=leader is not None, is_started=is_started)), leader or ORPHAN

    def _known_leader_of(self, living: Child, marker: str) -> int | None:
        if living.session in self._leaders:
            return living.session
        if marker.startswith(self.prefix):
            return next((leader for leader, own in self._leaders.items() if own == marker), ORPHAN)
        if self.cgroups is None:
            return None
        return next((leader for leader, own in self._places.items() if self.cgroups.holds(living.pid, own)), None)

    def _last_candidate(self, orphan: int) -> int:
        """The call of an orphan that hides: the last that still runs of those that ran when it was first seen.

        While several do it may be any's; once none does, it is killed.
        """
        if os.getpid() == 1:
            return UNKNOWN
        candidates = self._candidates.setdefault(orphan, set(self._leaders))
        candidates &= self._leaders.keys()
        if len(candidates) > 1:
            return UNKNOWN
        return next(iter(candidates), ORPHAN)

    def _is_unclaimed(self, zombie: int) -> bool:
        since = self._unclaimed.setdefault(zombie, time.monotonic())
        return time.monotonic() - since >= _CLAIM_SECONDS


def _is_started(pid: int) -> bool:
    return STARTED.is_starting or pid in STARTED  # in this order: one that was being started is recorded by then


def _reap(pid: int) -> bool:
    with suppress(ChildProcessError):
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    return False
