"""Creates a temporary directory for each call, for scripts, inputs and callers' files.

All directories are in a private directory, which the daemon locks with flock(2). The next daemon removes unlocked
directories. Programs that clean temporary directories skip locked directories (systemd-tmpfiles(8)).
"""

import fcntl
import os
import re
import shutil
import tempfile
import threading
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from itertools import chain, count
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import structlog

from gateway.errors import ExecutionError
from gateway.executors.invocation import Invocation
from gateway.json_types import Json, JsonObject
from gateway.language.files.file_argument import FileArgument
from gateway.language.files.media_types import suffix_of
from gateway.threads import MAX_ON_LOOP, DaemonThreadPool, run_in_thread

log: Final = structlog.get_logger(__name__)

_PREFIX: Final = "mcp-gateway-calls-"
_UNLOCKED: Final = "mcp-gateway-new-"
_ROOT: Final = re.compile(rf"{_PREFIX}\w{{8}}")
_SHOWN: Final = rf"/(?:{_PREFIX}\w{{8}}/\w{{8}}|{_UNLOCKED}\w{{8}}(?:/\w{{8}})?)/(?:files/)?"


class Scratch:
    """Creates a directory for each call. Inside `async with`, the directories are in a common, locked directory."""

    def __init__(self) -> None:
        self._is_open = False
        self._root: Path | None = None
        self._lock = -1

    async def __aenter__(self) -> Self:
        self._is_open = True
        if left := remove_leftovers():
            log.warning("removed the directories of a killed daemon", directories=left)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._is_open = False
        self._close()

    def new_folder(self) -> Path:
        """Create the directory of a call.

        Raises:
            OSError: the directory cannot be created.
        """
        if not self._is_open:
            return Path(tempfile.mkdtemp(prefix=_UNLOCKED))
        try:
            return Path(tempfile.mkdtemp(prefix="", dir=self._open_root()))
        except FileNotFoundError:  # removed by another program
            self._close()
            return Path(tempfile.mkdtemp(prefix="", dir=self._open_root()))

    def _open_root(self) -> Path:
        if self._root is None:
            self._root, self._lock = locked_directory(_PREFIX)
        return self._root

    def _close(self) -> None:
        root, self._root = self._root, None
        lock, self._lock = self._lock, -1
        if root is not None:
            shutil.rmtree(root, ignore_errors=True)
        if lock >= 0:
            os.close(lock)


def locked_directory(prefix: str) -> tuple[Path, int]:
    """Create a directory with mode 0700 and lock it with flock(2). Return its path and the descriptor of the lock."""
    new = Path(tempfile.mkdtemp(prefix=_UNLOCKED))
    lock = os.open(new, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Rename after locking, because `remove_leftovers` removes unlocked directories with this prefix.
        return new.rename(new.with_name(new.name.replace(_UNLOCKED, prefix))), lock
    except OSError:  # a file system without locks: the directory remains after a crash
        return new, lock


def remove_folder(folder: Path | None) -> None:
    if folder is not None:
        shutil.rmtree(folder, ignore_errors=True)


def remove_leftovers(names: re.Pattern[str] = _ROOT) -> int:
    """Remove directories left by killed daemons of this user. Return the number of removed directories."""
    folder = tempfile.gettempdir()
    try:
        found = os.listdir(folder)  # noqa: PTH208 - names are enough
    except OSError:
        return 0
    return sum(_is_removed(Path(folder, name)) for name in found if names.fullmatch(name))


def _is_removed(root: Path) -> bool:
    """Remove a directory unless another user or a running daemon owns it. Return whether it was removed."""
    with suppress(OSError):
        # O_NOFOLLOW: any user can create a link in a temporary directory.
        descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            if os.fstat(descriptor).st_uid == os.geteuid():
                # Fails while a daemon holds the lock.
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(root)
                return True
        finally:
            os.close(descriptor)
    return False


def without_scratch(text: str) -> str:
    """Remove the path of the call's directory from a string, because the model cannot use the path."""
    return re.sub(re.escape(tempfile.gettempdir()) + _SHOWN, "", text)


def output_without_scratch(output: bytes) -> bytes:
    """Apply `without_scratch` to bytes. Binary data is unchanged, because binary formats can contain offsets."""
    root = os.fsencode(tempfile.gettempdir())
    if root not in output or b"\0" in output:
        return output
    return re.sub(re.escape(root) + _SHOWN.encode(), b"", output)


_CHUNK: Final = 2**20


class FilePaths:
    """Writes the files in a call's arguments to a directory. In `arguments`, paths replace the files."""

    def __init__(self, arguments: JsonObject, *, folder: Path) -> None:
        self._directory: Final = folder / "files"
        self._files: Final[dict[Path, FileArgument]] = {}
        self._is_abandoned: Final = threading.Event()
        self._folder: Final = folder
        self.arguments: Final[JsonObject] = self._placed(arguments, "")

    async def write(self, invocation: Invocation, *, threads: DaemonThreadPool) -> None:
        """Write the files of the call. Large files are written in a thread.

        Raises:
            ExecutionError: a file cannot be written.
            DeadlineExceededError: writing took too long.
        """
        if sum(len(file.data) for file in self._files.values()) <= MAX_ON_LOOP:
            self._write()
            return
        try:
            await run_in_thread(self._write, what="Writing the files", call=invocation, threads=threads)
        except BaseException:
            self._is_abandoned.set()  # the thread removes the directory
            raise

    def _write(self) -> None:
        try:
            self._directory.mkdir(mode=0o700)
            for path, file in self._files.items():
                # O_EXCL overwrites no file and follows no link (open(2)).
                descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
                with os.fdopen(descriptor, "wb", buffering=0) as written:
                    left = memoryview(file.data)
                    while left and not self._is_abandoned.is_set():
                        left = left[written.write(left[:_CHUNK]) :]
        except OSError as error:
            if not self._is_abandoned.is_set():
                raise ExecutionError(f"cannot write the files of the call: {error.strerror}") from error
        finally:
            # Check this last, because the caller can remove the directory before the last write.
            if self._is_abandoned.is_set():
                remove_folder(self._folder)

    def _placed(self, value: Json, name: str) -> Json:
        match value:
            case FileArgument():
                path = self._path(name, suffix_of(value.media_type))
                self._files[path] = value
                return str(path)
            case Mapping():
                place = partial("{}-{}".format, name) if name else str
                return {key: self._placed(member, place(key)) for key, member in value.items()}
            case list():
                return [self._placed(item, f"{name}-{index + 1}") for index, item in enumerate(value)]
            case _:
                return value

    def _path(self, name: str, suffix: str) -> Path:
        # Many programs determine the format from the suffix.
        stem = re.sub(r"[^A-Za-z0-9_-]", "_", name)[:64]
        # Callers choose the keys of objects, so a numbered stem can be in use too.
        stems = chain([stem], (f"{stem}-{number}" for number in count(len(self._files))))
        return next(path for each in stems if (path := self._directory / f"{each}{suffix}") not in self._files)
