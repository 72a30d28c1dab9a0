"""Creates a temporary directory for each call, for scripts, inputs and callers' files."""

import re
import shutil
import tempfile
import threading
from collections.abc import Mapping
from functools import partial
from itertools import chain, count
from pathlib import Path
from typing import Final

from gateway.errors import ExecutionError
from gateway.executors.invocation import Invocation
from gateway.json_types import Json, JsonObject
from gateway.language.files.file_argument import FileArgument
from gateway.language.files.media_types import suffix_of
from gateway.threads import MAX_ON_LOOP, DaemonThreadPool, run_in_thread


def new_folder() -> Path:
    """Create the directory of a call with mode 0700.

    Raises:
        ExecutionError: the directory cannot be created.
    """
    try:
        return Path(tempfile.mkdtemp(prefix="mcp-gateway-call-"))
    except OSError as error:
        raise ExecutionError(f"cannot create a directory for the call: {error.strerror}") from error


def remove_folder(folder: Path | None) -> None:
    if folder is not None:
        shutil.rmtree(folder, ignore_errors=True)


def write_privately(path: Path, data: bytes) -> None:
    """Create a file with mode 0600."""
    path.touch(mode=0o600, exist_ok=False)
    path.write_bytes(data)


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
                write_privately(path, file.data)
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
