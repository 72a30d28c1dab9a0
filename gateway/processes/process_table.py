"""Finds the processes of calls in Linux's /proc.

`killpg` misses a process that leaves its process group (`setsid`). When the parent of such a process ends, the daemon
becomes the new parent (child subreaper). The session or an environment variable of a process identifies its call.
"""

import os
import re
import secrets
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Final

MARKER: Final = "MCP_GATEWAY_CALL"
ORPHAN: Final = 0
"""The key in `Families` for processes whose call has ended."""
_UNKNOWN: Final = -1
"""The key in `Families` for processes that could belong to several calls, or that are being started."""
Families = Mapping[int, set[int]]
"""The ids of the daemon's living children, by call. The key is the process id of the call's main process (leader)."""

_ROUNDS: Final = 8
"""The maximum number of passes per scan, so that processes that fork and exit in a loop do not keep the daemon busy."""
_STARTING_SECONDS: Final = 0.5
"""The maximum time between fork(2) and execve(2) of a child. Until then, the child has no environment."""
_UNCLAIMED_SECONDS: Final = 1.0
"""How long a zombie of unknown origin is kept, in case other code in the daemon reaps the zombie."""
_UNCLAIMED_IN_SESSION_SECONDS: Final = 10.0
"""How long a zombie in the daemon's own session is kept. Calls have other sessions, so other code started it."""


class Descendants:
    """Finds the descendants of running calls among the daemon's children.

    Only children of the main thread are considered, because the main thread inherits orphans.
    """

    def __init__(self) -> None:
        self.reaped = 0
        self.living = 0
        """The number of living orphaned processes that the last `scan` found."""
        self._leaders: dict[int, str] = {}
        """Maps the process id of each leader to its marker. The process id is also the session id."""
        self._earlier: set[int] = set()
        self._known: set[int] = set()
        self._hidden: dict[int, tuple[float, set[int]]] = {}
        """Maps each child without a marker to the time when it was first seen, and the leaders that ran then."""
        self._zombies: dict[int, float] = {}
        """Maps each zombie of unknown origin to the time when the zombie was first seen."""
        self._identity = ""
        self._process = ""
        """The part of the identity that all instances in this process share."""
        self._numbers = count(1)

    def open(self) -> None:
        self._process = f"{own_identity()}."
        self._identity = f"{self._process}{secrets.token_hex(8)}"
        # Children that other code starts, such as plugins, inherit this variable.
        os.environ[MARKER] = self._identity
        self._earlier = set(child_pids())

    @property
    def prefix(self) -> str:
        return f"{self._identity}-"

    def new_marker(self) -> Mapping[str, str]:
        """Return the environment variable that marks the next call."""
        return {MARKER: f"{self.prefix}{next(self._numbers)}"}

    def add(self, leader: int, marker: Mapping[str, str]) -> None:
        self._leaders[leader] = marker[MARKER]

    def remove(self, leader: int) -> None:
        del self._leaders[leader]

    def marked(self) -> Iterator[int]:
        """Yield the ids of all processes that this daemon has marked. Slow: reads the environment of every process."""
        return (pid for pid in all_pids() if (marker_of(pid) or "").startswith(self.prefix))

    def scan(self, *, is_urgent: bool = False) -> Families:
        """Reap zombies, and return the living children of calls.

        With `is_urgent`, zombies of unknown origin are reaped at once.
        """
        for _ in range(_ROUNDS):
            families, has_reaped = self._scan_once(is_urgent=is_urgent)
            if not has_reaped:
                break  # otherwise, a reaped process can have left new orphans
        self.living = sum(map(len, families.values()))
        return families

    def _scan_once(self, *, is_urgent: bool) -> tuple[Families, bool]:
        families: defaultdict[int, set[int]] = defaultdict(set)
        children = {pid: found for pid in child_pids() if pid not in self._leaders and (found := child_state(pid))}
        reaped = 0
        for pid, (is_zombie, session) in children.items():
            if is_zombie:
                reaped += (is_urgent or self._can_reap(pid, session)) and _reap(pid)
            elif (leader := self._leader_of(pid, session)) is not None:
                families[leader].add(pid)
                if leader != _UNKNOWN:
                    self._known.add(pid)
        self.reaped += reaped
        self._known.intersection_update(children)
        self._earlier.intersection_update(children)
        self._zombies = {pid: since for pid, since in self._zombies.items() if pid in children}
        self._hidden = {pid: seen for pid, seen in self._hidden.items() if pid in children}
        return families, bool(reaped)

    def _can_reap(self, zombie: int, session: int) -> bool:
        """Return whether the zombie belongs to a call, or other code has had enough time to reap the zombie."""
        if zombie in self._known or session in self._leaders:
            return True
        is_foreign = session == os.getsid(0) or zombie in self._earlier
        since = self._zombies.setdefault(zombie, time.monotonic())
        return time.monotonic() - since >= (_UNCLAIMED_IN_SESSION_SECONDS if is_foreign else _UNCLAIMED_SECONDS)

    def _leader_of(self, living: int, session: int) -> int | None:
        """Return the leader of a child's call, or None if other code started the child."""
        if session == os.getsid(0) or living in self._earlier:
            return None
        # Leaders are reaped last, so no other session can have this id.
        if session in self._leaders:
            return session
        marker = marker_of(living) or ""
        if marker.startswith(self.prefix):
            return next((leader for leader, own in self._leaders.items() if own == marker), ORPHAN)
        # Children of other code in this process also have its marker. The first process of a container also inherits
        # foreign processes (`docker exec`).
        if marker.startswith(self._process) or os.getpid() == 1:
            return None
        # The child hides its origin (`env -i setsid`). It can belong to any call that was running when it appeared.
        since, leaders = self._hidden.setdefault(living, (time.monotonic(), set(self._leaders)))
        is_starting = time.monotonic() - since < _STARTING_SECONDS
        return _UNKNOWN if is_starting or leaders & self._leaders.keys() else ORPHAN


def child_pids() -> list[int]:
    try:
        return [int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_bytes().split()]
    except OSError:  # a kernel without CONFIG_PROC_CHILDREN
        return [pid for pid in all_pids() if (fields := _stat(pid)) and int(fields[1]) == os.getpid()]


def child_state(pid: int) -> tuple[bool, int] | None:
    """Return whether a child is a zombie, and its session id. Return None if no such child exists.

    Uses waitid(2), because /proc can hide the processes of other users.
    """
    try:
        dead = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG)
        return dead is not None, os.getsid(pid)
    except OSError:
        return None


def _reap(pid: int) -> bool:
    with suppress(ChildProcessError):
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    return False


def own_identity() -> str:
    fields = _stat(os.getpid())
    return f"{_pid_namespace()}.{os.getpid()}.{fields[_START_TIME] if fields else 0}"


def is_gone(identity: str) -> bool:
    """Return whether a process is known to have ended. `identity` is the value of `own_identity` in that process."""
    found = _IDENTITY.fullmatch(identity)
    if found is None or int(found["namespace"]) != _pid_namespace():
        return False
    pid = int(found["pid"])
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except OSError:  # EPERM (kill(2)): the process belongs to another user
        return False
    fields = _stat(pid)
    # A different start time means that the process id was reused.
    return fields is not None and (fields[0] in {"Z", "X"} or fields[_START_TIME] != found["started"])


# `own_identity` contains 0 for each part that could not be read. Such an identity must never match.
_IDENTITY: Final = re.compile(r"(?P<namespace>[1-9]\d*)\.(?P<pid>[1-9]\d*)\.(?P<started>[1-9]\d*)", re.ASCII)
_START_TIME: Final = 19
"""Index of `starttime` (proc_pid_stat(5), field 22) in the result of `_stat`. The unit is clock ticks since boot."""


def _pid_namespace() -> int:
    with suppress(OSError):
        return Path("/proc/self/ns/pid").stat().st_ino
    return 0


def marker_of(pid: int) -> str | None:
    """Return the value of `MARKER` in the environment of a process, or None. A zombie has no environment."""
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return None
    # The leading NUL excludes longer variable names that end in the marker.
    _, found, rest = (b"\0%b" % environment).partition(f"\0{MARKER}=".encode())
    return rest.partition(b"\0")[0].decode(errors="replace") if found else None


def descendants_of(ancestor: int) -> list[int]:
    """Return the ids of all descendants, parents first. Kernels without CONFIG_PROC_CHILDREN report no descendants."""
    found = [ancestor]
    for pid in found:
        with suppress(OSError):
            threads = os.listdir(f"/proc/{pid}/task")  # noqa: PTH208 - names are enough
            children = [Path(f"/proc/{pid}/task/{thread}/children").read_bytes() for thread in threads]
            found += map(int, b" ".join(children).split())
    return found[1:]


def _stat(pid: int) -> list[str] | None:
    """Return the fields of proc_pid_stat(5) after the command name."""
    try:
        line = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    return line.rpartition(")")[2].split() or None  # the command name can contain anything


def all_pids() -> Iterator[int]:
    try:
        yield from (int(name) for name in os.listdir("/proc") if name.isdecimal())  # noqa: PTH208 - names are enough
    except OSError:
        return
