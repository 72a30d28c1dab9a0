"""Keeps tests' temporary directories in memory: on a disk each new file costs half a millisecond of processor time.

Where this process may mount, pytest's own directory (`/tmp/pytest-of-root`) becomes a tmpfs that it and its children
alone see, and that ends with the last of them. So do the files of a test that failed; `--basetemp=DIRECTORY` keeps all.
"""

import ctypes
import getpass
import os
import tempfile
from pathlib import Path
from typing import Final

MEMORY: Final = 8 * 2**30
"""Bytes that must be free; tests take some hundred MiB of them, and the image that one of them builds two GiB."""
_CLONE_NEWNS: Final = 0x00020000
_MS_REC: Final = 0x4000
_MS_PRIVATE: Final = 1 << 18
"""unshare(2) and mount(2)."""


def keep_in_memory() -> None:
    """Do so, unless a parent of this process has, or it may not, or memory is short."""
    if os.geteuid() != 0 or _available() < MEMORY:
        return
    folder = Path(os.environ.get("PYTEST_DEBUG_TEMPROOT") or tempfile.gettempdir(), f"pytest-of-{getpass.getuser()}")
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.is_symlink() or folder.is_mount():
        return
    libc = ctypes.CDLL(None)
    is_alone = libc.unshare(_CLONE_NEWNS) == 0 and libc.mount(b"none", b"/", None, _MS_REC | _MS_PRIVATE, None) == 0
    if is_alone:
        libc.mount(b"tmpfs", os.fsencode(folder), b"tmpfs", 0, b"mode=0700")


def _available() -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return 0
