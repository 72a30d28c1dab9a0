"""Directories for the files of calls: a script and its inputs, files that callers gave. One for each call.

They stand in one directory of the daemon's own, which nobody else can enter. It is locked (flock(2)) as long as the
daemon runs: what a killed one has left is not locked any more, and the next daemon removes it. Programs that clean
temporary directories leave a locked one alone (systemd-tmpfiles(8)).
"""

import fcntl
import os
import re
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import structlog

log: Final = structlog.get_logger()

_PREFIX: Final = "mcp-gateway-calls-"
_UNLOCKED: Final = "mcp-gateway-new-"
_ROOT: Final = re.compile(rf"{_PREFIX}\w{{8}}")
_SHOWN: Final = rf"/(?:{_PREFIX}\w{{8}}/\w{{8}}|{_UNLOCKED}\w{{8}}(?:/\w{{8}})?)/(?:files/)?"


class Scratch:
    """Makes directories for calls: `async with Scratch() as scratch`. Before that, it makes each by itself."""

    def __init__(self) -> None:
        self._is_open = False
        self._root: Path | None = None
        self._lock = -1

    async def __aenter__(self) -> Self:
        self._is_open = True
        if left := remove_leftovers():
            log.warning("removed what calls of a killed daemon had left", directories=left)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._is_open = False
        self._close()

    def new_folder(self) -> Path:
        """Make the directory of a call.

        Raises:
            OSError: none can be made.
        """
        if not self._is_open:
            return Path(tempfile.mkdtemp(prefix=_UNLOCKED))
        try:
            return Path(tempfile.mkdtemp(prefix="", dir=self._open_root()))
        except FileNotFoundError:  # somebody has removed it
            self._close()
            return Path(tempfile.mkdtemp(prefix="", dir=self._open_root()))

    def _open_root(self) -> Path:
        """The daemon's own directory, which gets its name once it is locked: until then nobody takes it for left."""
        if self._root is None:
            new = Path(tempfile.mkdtemp(prefix=_UNLOCKED))
            try:
                self._lock = os.open(new, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self._root = new.rename(new.with_name(new.name.replace(_UNLOCKED, _PREFIX)))
            except OSError:  # a file system without locks: it serves, and nobody removes it after a crash
                self._root = new
        return self._root

    def _close(self) -> None:
        root, self._root = self._root, None
        lock, self._lock = self._lock, -1
        if root is not None:
            shutil.rmtree(root, ignore_errors=True)
        if lock >= 0:
            os.close(lock)


def remove_folder(folder: Path | None) -> None:
    """Remove the directory of a call, if it has one."""
    if folder is not None:
        shutil.rmtree(folder, ignore_errors=True)


def remove_leftovers(names: re.Pattern[str] = _ROOT) -> int:
    """Remove the directories of such names whose daemons, this user's, were killed; return how many there were."""
    folder = tempfile.gettempdir()
    try:
        found = os.listdir(folder)  # noqa: PTH208 - there may be thousands, of which names are enough
    except OSError:
        return 0
    return sum(_is_removed(Path(folder, name)) for name in found if names.fullmatch(name))


def _is_removed(root: Path) -> bool:
    """Remove one, unless it is somebody else's, or its daemon lives."""
    with suppress(OSError):
        # O_NOFOLLOW: anybody may put a link of such a name into a temporary directory.
        descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            if os.fstat(descriptor).st_uid == os.geteuid():
                # Fails as long as the daemon lives that has locked it.
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(root)
                return True
        finally:
            os.close(descriptor)
    return False


def without_scratch(text: str) -> str:
    """Name files of a call without their directory: that is gone by now, and of no use to the model."""
    return re.sub(re.escape(tempfile.gettempdir()) + _SHOWN, "", text)


def output_without_scratch(output: bytes) -> bytes:
    """Like `without_scratch`. What is no text stays as it is: the offsets in a binary file would be wrong."""
    root = os.fsencode(tempfile.gettempdir())
    if root not in output or b"\0" in output:
        return output
    return re.sub(re.escape(root) + _SHOWN.encode(), b"", output)
