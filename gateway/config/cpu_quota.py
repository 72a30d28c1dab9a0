"""The number of processors that this process may use: by its affinity, and by the quota of its control groups.

A container's limit of CPU is a quota (cgroups(7)): `cpu.max` of version 2, `cpu.cfs_quota_us` of version 1. A quota of
the group itself and of each group above it holds.
"""

import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_PROC: Final = Path("/proc/self/cgroup")
_MOUNT: Final = Path("/sys/fs/cgroup")


def usable_processors(*, groups: Path = _PROC, mount: Path = _MOUNT) -> int:
    """Return how many there are, with a begun one counted whole."""
    # `os.cpu_count` has those of the machine; `os.process_cpu_count` came with Python 3.13.
    affinity = len(os.sched_getaffinity(0))
    quotas = [math.ceil(quota) for quota in _quotas(groups, mount)]
    return max(1, min([affinity, *quotas]))


def _quotas(groups: Path, mount: Path) -> Iterator[float]:
    for line in _text(groups).splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        # cgroups(7): the one line of version 2 names no controllers.
        if not controllers:
            for folder in _upwards(mount, path):
                yield from _quota(_text(folder / "cpu.max").split())
        elif "cpu" in controllers.split(","):
            # Version 1 has a mount for each controller; where two share one, each has a link of its name.
            for folder in _upwards(mount / "cpu", path):
                yield from _quota([_text(folder / f"cpu.cfs_{name}_us").strip() for name in ("quota", "period")])


def _upwards(root: Path, path: str) -> Iterator[Path]:
    """The directories of a group and of those above it. In a container the path may be that of the host."""
    folder = root / path.strip("/")
    while folder != root:
        yield folder
        folder = folder.parent
    yield root


def _quota(words: list[str]) -> Iterator[float]:
    """The quota that two numbers make, of the time used and of the time that passes; `max` and -1 are none."""
    if len(words) == 2 and all(each.isdigit() for each in words) and int(words[0]) and int(words[1]):
        yield int(words[0]) / int(words[1])


def _text(path: Path) -> str:
    try:
        return path.read_text()
    # There is no such file where cgroups have another version, or the system has none.
    except (OSError, ValueError):
        return ""
