"""Facilities of Linux that other systems, restricted containers and old kernels can lack.

Other modules use the facilities through this module, which reports and replaces missing facilities.
"""

import ctypes
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

IS_LINUX: Final = sys.platform == "linux"
_PR_SET_CHILD_SUBREAPER: Final = 36
# Parameters of mallopt(3).
_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3


def can_find_processes() -> bool:
    """Return whether the descendants of a command can be found after they leave its process group."""
    return hasattr(os, "pidfd_open") and _libc("prctl") is not None and Path("/proc/self/stat").exists()


def become_subreaper() -> bool:
    """Make this process the parent of its orphaned descendants. Return False if the system cannot find descendants."""
    prctl = _libc("prctl") if can_find_processes() else None
    return prctl is not None and prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0


def processors_of_affinity() -> int:
    """Return the number of processors that this process can use. Without CPU affinity, count all processors."""
    # `os.cpu_count` ignores the affinity. `os.process_cpu_count` requires Python 3.13.
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def return_large_blocks() -> None:
    """Make glibc return memory blocks larger than 1 MiB to the operating system as soon as they are freed.

    By default, glibc raises its mmap threshold to the size of each freed mapped block, up to 32 MiB. After that, large
    blocks are allocated from heaps, which rarely shrink.
    """
    mallopt = _libc("mallopt") if _libc("gnu_get_libc_version") is not None else None
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, 2**20)
        mallopt(_M_TRIM_THRESHOLD, 2 * 2**20)  # The same ratio as in glibc's defaults.


def missing_facilities() -> dict[str, str]:
    """Return a description of the effect of each missing facility, by name."""
    facilities = (
        ("process tracking", "processes that leave their process group are not ended", can_find_processes()),
        ("CPU affinity", "`--workers auto` starts a worker for each processor", hasattr(os, "sched_getaffinity")),
        ("namespaces", "`sandbox` and `limits.memory` cannot be used", IS_LINUX),
    )
    return {name: effect for name, effect, is_present in facilities if not is_present}


def _libc(name: str) -> Callable[..., int] | None:
    function: Callable[..., int] | None = getattr(ctypes.CDLL(None), name, None)
    return function
