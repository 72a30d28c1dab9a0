"""The number of usable processors, from affinity and cgroup quotas."""

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from gateway.config.machine_facts import usable_processors
from gateway.platform_facilities import processors_of_affinity
from tests.programs import linux_only

ALL = processors_of_affinity()


@pytest.mark.parametrize(
    ("groups", "files", "expected"),
    [
        ("0::/\n", {"cpu.max": "max 100000\n"}, ALL),
        ("0::/\n", {"cpu.max": "100000 100000\n"}, 1),
        ("0::/\n", {"cpu.max": "20000 100000\n"}, 1),
        ("0::/\n", {"cpu.max": "150000 100000\n"}, min(ALL, 2)),
        ("0::/\n", {"cpu.max": "99999999 100000\n"}, ALL),
        ("0::/a/b\n", {"a/cpu.max": "100000 100000\n", "a/b/cpu.max": "max 100000\n"}, 1),
        ("0::/of/the/host\n", {"cpu.max": "100000 100000\n"}, 1),
        ("4:cpu,cpuacct:/a\n0::/\n", {"cpu.max": "100000 100000\n"}, 1),
        ("4:cpu,cpuacct:/a\n", {"cpu.max": "100000 100000\n"}, ALL),
        ("0::/\n", {"cpu.max": "what\n"}, ALL),
        ("", {}, ALL),
    ],
)
def test_processors_are_limited_by_affinity_and_quotas(
    tmp_path: Path, groups: str, files: Mapping[str, str], expected: int
) -> None:
    (tmp_path / "cgroup").write_text(groups)
    for name, text in files.items():
        path = tmp_path / "mount" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert usable_processors(groups=tmp_path / "cgroup", mount=tmp_path / "mount") == expected


@linux_only
def test_processors_are_limited_by_affinity(tmp_path: Path) -> None:
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, [min(before)])
    try:
        assert usable_processors(groups=tmp_path / "none", mount=tmp_path) == 1
    finally:
        os.sched_setaffinity(0, before)
