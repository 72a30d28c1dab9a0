"""The process table: the daemon's children, as Linux's /proc and waitid(2) describe them; empty on other systems.

Why: a process that leaves its group (`setsid`) or its parent (a double fork) is missed by `killpg`. As child subreaper
the daemon inherits it, and knows it again by the marker in its environment, or by the session that it was born in.
"""

import ctypes
import os
import re
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

MARKER: Final = "MCP_GATEWAY_CALL"
"""Environment variable by which the processes of one call are known."""

_PR_SET_CHILD_SUBREAPER: Final = 36
"""prctl(2)"""


class Child(msgspec.Struct, frozen=True, kw_only=True):
    """A process whose parent is the daemon."""

    pid: int
    is_zombie: bool
    session: int


def become_subreaper() -> bool:
    """Have orphaned descendants become children of this process and not init's, where there is a /proc to find them."""
    if sys.platform != "linux" or not Path("/proc/self/stat").exists():
        return False
    libc = ctypes.CDLL(None, use_errno=True)
    return bool(libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)


class ChildList:
    """The children of the daemon's main thread, which is the one that inherits orphans.

    The kernel's file stays open: opening it anew takes twenty times as long as reading it.
    """

    def __init__(self) -> None:
        self._descriptor: int | None = None

    def pids(self) -> list[int]:
        try:
            if self._descriptor is None:
                self._descriptor = os.open(f"/proc/self/task/{os.getpid()}/children", os.O_RDONLY | os.O_CLOEXEC)
            data = chunk = os.pread(self._descriptor, _PAGE, 0)
            while chunk:  # a page at a time, whatever is asked for
                chunk = os.pread(self._descriptor, _PAGE, len(data))
                data += chunk
        except OSError:  # a kernel without CONFIG_PROC_CHILDREN
            return [pid for pid in all_pids() if (fields := _stat(pid)) and int(fields[1]) == os.getpid()]
        return [int(pid) for pid in data.split()]

    def close(self) -> None:
        """Close the file; it opens again where it is needed."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


_PAGE: Final = 4096


def child(pid: int) -> Child | None:
    """Return what is known of a child, or None if there is no such child any more.

    Asks the kernel and not /proc: that is five times as fast, and works where /proc hides other users' processes.
    """
    if sys.platform != "linux":
        return None
    try:
        dead = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG)
        return Child(pid=pid, is_zombie=dead is not None, session=os.getsid(pid))
    except OSError:
        return None


def own_identity() -> str:
    """Return what tells this process from every other: namespace of its id, id, and when it was started."""
    fields = _stat(os.getpid())
    return f"{_pid_namespace()}.{os.getpid()}.{fields[_START_TIME] if fields else 0}"


def is_gone(identity: str) -> bool:
    """Whether the process with this identity has ended for certain: one of another PID namespace may be alive."""
    found = _IDENTITY.fullmatch(identity)
    if found is None or int(found["namespace"]) != _pid_namespace():
        return False
    pid = int(found["pid"])
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    # kill(2), EPERM: it is there, and belongs to another user.
    except OSError:
        return False
    fields = _stat(pid)
    # A zombie has ended, too; with another start time it is another process that was given the same id.
    return fields is not None and (fields[0] in {"Z", "X"} or fields[_START_TIME] != found["started"])


# No part may be 0, which stands for what could not be found out: such a process is never taken for gone.
_IDENTITY: Final = re.compile(r"(?P<namespace>[1-9]\d*)\.(?P<pid>[1-9]\d*)\.(?P<started>[1-9]\d*)", re.ASCII)
# proc_pid_stat(5): field 22, and `_stat` begins with field 3.
_START_TIME: Final = 19
"""Index of `starttime`, in clock ticks since the machine was booted, in what `_stat` returns."""


def _pid_namespace() -> int:
    with suppress(OSError):
        return Path("/proc/self/ns/pid").stat().st_ino
    return 0


def marker_of(pid: int) -> str | None:
    """Return the marker in a process's environment; a zombie has no environment any more."""
    environment = read(f"/proc/{pid}/environ")
    # With a NUL before it: the name must be whole, and not the end of a longer one.
    _, found, rest = (b"\0%b" % environment).partition(f"\0{MARKER}=".encode())
    return rest.partition(b"\0")[0].decode(errors="replace") if found else None


def descendants_of(ancestor: int) -> list[int]:
    """Return the children of a process, then theirs, and so on; none where the kernel does not tell them."""
    found = [ancestor]
    # The list grows as it is walked, so each process stands behind its parent (`ProcessTree.kept` relies on that).
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
    line = read(f"/proc/{pid}/stat").decode(errors="replace")
    return line.rpartition(")")[2].split() or None  # the name before it may hold anything


def read(path: str) -> bytes:
    """Return what a file of the kernel's says, and nothing where there is none, or it is another user's."""
    try:
        with open(path, "rb", buffering=0) as file:  # noqa: PTH123 - pathlib takes as long again
            return file.readall()
    except OSError:
        return b""


def all_pids() -> Iterator[int]:
    """Every process of the machine."""
    try:
        yield from (int(name) for name in os.listdir("/proc") if name.isdecimal())  # noqa: PTH208 - names are enough
    except OSError:
        return
