"""The sandbox probe: finds out whether sandboxes work on this machine by making one, and what is missing if not."""

import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Final

_OLDEST: Final = (0, 8)
"""Bubblewrap that can forbid further user namespaces, and bound a tmpfs."""
_INSTALL: Final = "install the package bubblewrap (apt-get, dnf or apk)"
_TIMEOUT_SECONDS: Final = 10.0


def sandbox_problem(bwrap: tuple[str, ...]) -> str | None:
    """Say why this command, bubblewrap with what every such sandbox has, cannot run a program. Blocking."""
    if sys.platform != "linux":
        return "sandboxes need Linux"
    program = shutil.which(bwrap[0])
    if program is None:
        return f"needs the program `{bwrap[0]}`, which is not installed: {_INSTALL}"
    return _problem_of(program, Path(program).stat().st_mtime_ns, bwrap[1:])


def forget_sandboxes() -> None:
    """Make the next `sandbox_problem` try again, as settings of the kernel may have changed."""
    _problem_of.cache_clear()


@lru_cache(maxsize=16)  # a file may have hundreds of sandboxes of the same kind
def _problem_of(program: str, _modified: int, options: tuple[str, ...]) -> str | None:
    said = _run([program, "--version"])[1]
    version = re.search(r"(\d+)\.(\d+)", said)
    # One that cannot be read is no reason to refuse: the attempt below tells.
    if version is not None and (int(version[1]), int(version[2])) < _OLDEST:
        return f"needs bubblewrap {'.'.join(map(str, _OLDEST))} or later, and this is {version[0]}"
    # As the first process, so that nothing is left that somebody would have to wait for.
    code, said = _run([program, *options, "--as-pid-1", "--", "true"])
    return None if code == 0 else f"bubblewrap cannot make a sandbox here ({said or f'exit code {code}'}); {_remedy()}"


def _run(argv: Sequence[str]) -> tuple[int, str]:
    try:
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_TIMEOUT_SECONDS,
            check=False,
            start_new_session=True,
        )
    except OSError as error:
        return -1, error.strerror or str(error)
    except subprocess.TimeoutExpired:
        return -1, "it does not end"
    return done.returncode, " ".join(done.stdout.decode(errors="replace").split()).removeprefix("bwrap: ")[:200]


# Debian's kernels have the second, Ubuntu's (from 23.10 on) the third.
_SWITCHES: Final = (
    ("/proc/sys/user/max_user_namespaces", "0", "user.max_user_namespaces=15000"),
    ("/proc/sys/kernel/unprivileged_userns_clone", "0", "kernel.unprivileged_userns_clone=1"),
    ("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1", "kernel.apparmor_restrict_unprivileged_userns=0"),
)
"""Files, what stands in them where user namespaces are forbidden, and the setting that allows them."""


def _remedy() -> str:
    for path, forbidding, setting in _SWITCHES:
        try:
            if Path(path).read_text(encoding="ascii").strip() == forbidding:
                return f"user namespaces are forbidden: allow them with `sysctl -w {setting}`"
        # This kernel has no such setting.
        except OSError:
            continue
    return "in a container, its runtime must allow user namespaces and mounts (seccomp, AppArmor)"
