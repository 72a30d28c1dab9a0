"""Control groups of calls (cgroups(7), version 2), where the daemon may create some: no process leaves one by itself.

Usable are those below the daemon's own, if it may write there: systemd's `Delegate=yes`, a container with a writable
/sys/fs/cgroup, or root. Where they are not, markers, sessions and parents tell what belongs to a call (`Descendants`).

Why the child is moved from outside, just after it was started: Python cannot start it inside (CLONE_INTO_CGROUP), and a
program in front that moves itself costs as much as the spawn. Measured for `true`, whose spawn takes 620 µs: to move it
18 µs, to make and remove a cgroup 40 µs, which is why empty ones are used again; a call of 820 µs pays 50 µs in all.
What a child forks in the moment before it is moved is not inside, and is recognised by the other means.
"""

import os
import time
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Final, Self

from gateway.processes.process_table import is_gone, read

MOST_PROCESSES: Final = 4096
"""The limit of processes and threads of a call, where the controller `pids` is there to bound them."""
_PREFIX: Final = "mcp-gateway-"
_SPARE: Final = 8
"""The number of empty ones that are kept for the next calls, their files open, and made at the start: no call adds open
descriptors."""
_EMPTYING_SECONDS: Final = 1.0


class Cgroup:
    """A control group for the processes of one call."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._procs: int | None = None
        self._events: int | None = None
        """Descriptors that stay open from one call to the next: opening each file anew costs 10 µs a call."""

    def open(self) -> int:
        """Open its files, and return the one that takes processes."""
        if self._procs is None:
            self._procs = os.open(f"{self.path}/cgroup.procs", os.O_WRONLY | os.O_CLOEXEC)
            self._events = os.open(f"{self.path}/cgroup.events", os.O_RDONLY | os.O_CLOEXEC)
        return self._procs

    def add(self, pid: int) -> bool:
        """Move a process here, unless it has ended or that is forbidden."""
        try:
            return os.write(self.open(), b"%d" % pid) > 0
        except OSError:
            return False

    def is_populated(self) -> bool:
        """Whether a process is alive here or below; zombies are not."""
        if self._events is None:
            return b"populated 1" in read(f"{self.path}/cgroup.events")
        try:
            # Read at 0, which has the kernel write the file anew: no seek is needed.
            return b"populated 1" in os.pread(self._events, 256, 0)
        except OSError:
            return False

    def pids(self) -> set[int]:
        """Return the living processes."""
        # Asked first whether there are any, by the descriptor that is open already: most calls leave nothing.
        return {int(pid) for pid in read(f"{self.path}/cgroup.procs").split()} if self.is_populated() else set()

    def close(self) -> None:
        """Close what is open; it opens again where it is needed."""
        for descriptor in (self._procs, self._events):
            if descriptor is not None:
                os.close(descriptor)
        self._procs = self._events = None

    def kill(self) -> None:
        """Kill all, whatever they fork meanwhile."""
        _write(f"{self.path}/cgroup.kill", "1")

    def remove(self) -> bool:
        """Remove it, unless a process is left in it. Another daemon that starts may remove it at the same time."""
        with suppress(OSError):
            # A container runtime that ran inside makes cgroups of its own, which must be removed first.
            for below in list(self.path.glob("*/")):
                Cgroup(below).remove()
        self.close()
        with suppress(OSError):
            self.path.rmdir()
        return not self.path.exists()


class Cgroups:
    """The cgroups of one daemon's calls, in one that bears its identity."""

    def __init__(self, parent: Path) -> None:
        self._parent = Cgroup(parent)
        self._spare: list[Cgroup] = []
        self._numbers = count(1)

    @classmethod
    def open(cls, identity: str) -> Self | None:
        """Make the parent of all, and end what earlier daemons left; None where that cannot be had."""
        own = _own()
        # cgroups(7), "Delegation containment rules": who moves a process must be able to write to `cgroup.procs` of the
        # nearest common ancestor, which is the daemon's own cgroup.
        if own is None or not os.access(own / "cgroup.procs", os.W_OK):
            return None
        _end_leftovers(own)
        # The time tells apart what one process opens several times.
        parent = own / f"{_PREFIX}{identity}.{time.monotonic_ns()}"
        try:
            parent.mkdir()
        except OSError:
            return None
        if not (parent / "cgroup.kill").exists():  # Linux before 5.14
            parent.rmdir()
            return None
        # Refused where the daemon itself is in there (cgroups(7), "no internal processes"): then there is no bound.
        _write(f"{own}/cgroup.subtree_control", "+pids")
        _write(f"{parent}/cgroup.subtree_control", "+pids")
        cgroups = cls(parent)
        cgroups._make_spare()
        return cgroups

    def _make_spare(self) -> None:
        for cgroup in filter(None, [self.take() for _ in range(_SPARE)]):
            with suppress(OSError):
                cgroup.open()
            self.give_back(cgroup, is_empty=True)

    def take(self) -> Cgroup | None:
        """Return an empty one, or None where no more can be made."""
        if self._spare:
            return self._spare.pop()
        cgroup = Cgroup(self._parent.path / str(next(self._numbers)))
        try:
            cgroup.path.mkdir()
        except OSError:
            return None
        _write(f"{cgroup.path}/pids.max", str(MOST_PROCESSES))
        return cgroup

    def give_back(self, cgroup: Cgroup, *, is_empty: bool) -> None:
        """Take one whose call has ended."""
        if not is_empty:
            # Not used again: a process that survived the killing would be taken for one of the next call.
            cgroup.kill()
            cgroup.close()
        elif len(self._spare) < _SPARE:
            self._spare.append(cgroup)
        else:
            cgroup.remove()

    def holds(self, pid: int, cgroup: Cgroup) -> bool:
        """Whether a process is in this one, or below."""
        # With a slash at its end: call 1 must not be found in the path of call 12.
        shown = f"{_shown_cgroup(str(pid))}/"
        return f"/{self._parent.path.name}/{cgroup.path.name}/" in shown

    def kill(self) -> None:
        """Kill everything in all of them."""
        self._parent.kill()

    def close(self) -> None:
        """Kill what is left, and remove them all."""
        for cgroup in self._spare:
            cgroup.close()
        _end(self._parent)


def _end_leftovers(own: Path) -> None:
    """End the calls of daemons that are gone."""
    for path in list(own.glob(f"{_PREFIX}*/")):
        identity = path.name.removeprefix(_PREFIX).rpartition(".")[0]
        if is_gone(identity):
            _end(Cgroup(path))


def _end(cgroup: Cgroup) -> None:
    if cgroup.is_populated():
        cgroup.kill()
    give_up = time.monotonic() + _EMPTYING_SECONDS
    # cgroups(7): it can be removed only once no process but zombies is left, which takes the killed ones a moment.
    while not cgroup.remove() and time.monotonic() < give_up:
        time.sleep(0.005)


def _own() -> Path | None:
    """The directory of the daemon's cgroup."""
    shown = _shown_cgroup("self")
    # cgroup_namespaces(7): such a path leads out of the namespace, to where nothing is mounted here.
    if not shown or "/.." in shown:
        return None
    for line in read("/proc/self/mountinfo").decode(errors="replace").splitlines():
        mount, _, filesystem = line.partition(" - ")  # proc_pid_mountinfo(5)
        # Fields 4 and 5 are the root of the mount and the mount point; where only a part is mounted, the root is not /.
        if filesystem.startswith("cgroup2 ") and mount.split()[3] == "/":
            return Path(mount.split()[4] + shown)
    return None


def _shown_cgroup(pid: str) -> str:
    """The path of a process's cgroup below the mount, or nothing."""
    lines = read(f"/proc/{pid}/cgroup").decode(errors="replace").splitlines()
    # cgroups(7): version 2 has the hierarchy number 0 and no list of controllers; other lines are version 1.
    return next((line.removeprefix("0::") for line in lines if line.startswith("0::")), "")


def _write(path: str, text: str) -> bool:
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        os.write(descriptor, text.encode())
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True
