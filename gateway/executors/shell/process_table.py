"""What the operating system says about the daemon's children. Linux's /proc; elsewhere it says nothing.

Why: a process that leaves its group (`setsid`) or its parent (a double fork) is missed by `killpg`. As child subreaper
the daemon inherits it, and knows it again by the marker in its environment, or by the session that it was born in.
"""

import ctypes
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

MARKER: Final = "MCP_GATEWAY_CALL"
"""Environment variable by which the processes of one call are known."""

_PR_SET_CHILD_SUBREAPER: Final = 36
"""prctl(2)"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Child:
    """A process whose parent is the daemon."""

    pid: int
    is_zombie: bool
    session: int


def become_subreaper() -> bool:
    """Have orphaned descendants become children of this process, instead of init's."""
    if sys.platform != "linux":
        return False
    libc = ctypes.CDLL(None, use_errno=True)
    return bool(libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)


def child_pids() -> list[int]:
    """Return the children of the daemon's main thread, which is the one that inherits orphans."""
    own = os.getpid()
    try:
        return [int(pid) for pid in Path(f"/proc/self/task/{own}/children").read_bytes().split()]
    except OSError:  # a kernel without CONFIG_PROC_CHILDREN
        return [pid for pid in all_pids() if (fields := _stat(pid)) and int(fields[1]) == own]


def child(pid: int) -> Child | None:
    """Return what is known of a child, or None if there is no such child any more."""
    fields = _stat(pid)
    if fields is None or int(fields[1]) != os.getpid():
        return None
    return Child(pid=pid, is_zombie=fields[0] in {"Z", "X"}, session=int(fields[3]))


def marker_of(pid: int) -> str | None:
    """Return the marker in a process's environment; a zombie has no environment any more."""
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:  # gone, or another user's
        return None
    prefix = f"{MARKER}=".encode()
    return next((entry[len(prefix) :].decode() for entry in environment.split(b"\0") if entry.startswith(prefix)), None)


def descendants_of(ancestor: int) -> list[int]:
    """Return the children of a process, then theirs, and so on; none where the kernel does not tell them."""
    found = [ancestor]
    for pid in found:
        found += _children_of(pid)
    return found[1:]


def _children_of(pid: int) -> list[int]:
    """Each thread has children of its own (proc_pid_task(5))."""
    try:
        threads = os.listdir(f"/proc/{pid}/task")  # noqa: PTH208 - names are enough
        children = [Path(f"/proc/{pid}/task/{thread}/children").read_bytes().split() for thread in threads]
    except OSError:  # gone, or a kernel without CONFIG_PROC_CHILDREN
        return []
    return [int(child) for each in children for child in each]


def _stat(pid: int) -> list[str] | None:
    """Return state, parent, group, session … of a process (proc_pid_stat(5))."""
    try:
        line = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    return line.rpartition(")")[2].split()  # the name before it may hold anything


def all_pids() -> Iterator[int]:
    """Every process of the machine."""
    try:
        yield from (int(name) for name in os.listdir("/proc") if name.isdecimal())  # noqa: PTH208 - names are enough
    except OSError:
        return
