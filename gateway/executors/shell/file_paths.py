"""Files that callers gave, as paths: written to the directory of the call, each named for its input.

A name from the caller is not used: a path is read by whatever program the command is.
"""

import os
import re
import threading
from collections.abc import Mapping
from functools import partial
from itertools import chain, count
from pathlib import Path
from typing import Final

from gateway.errors import ExecutionError
from gateway.executors.invocation import Invocation
from gateway.executors.shell.scratch import remove_folder
from gateway.json_types import Json, JsonObject
from gateway.language.files.file_argument import FileArgument
from gateway.language.files.media_types import suffix_of
from gateway.threads import MAX_ON_LOOP, DaemonThreadPool, run_in_thread

_FOLDER: Final = "files"
_CHUNK: Final = 2**20
_MAX_STEM: Final = 64


class FilePaths:
    """The files of one call, and the arguments with their paths."""

    def __init__(self, arguments: JsonObject, *, folder: Path) -> None:
        """Give each file a path; nothing is written yet."""
        self._directory: Final = folder / _FOLDER
        self._files: Final[dict[Path, FileArgument]] = {}
        self._is_abandoned: Final = threading.Event()
        self._folder: Final = folder
        self.arguments: Final[JsonObject] = self._placed(arguments, "")

    async def write(self, invocation: Invocation, *, threads: DaemonThreadPool) -> None:
        """Write the files: a little on the event loop, and much in a thread.

        Raises:
            ExecutionError: they cannot be written.
            DeadlineExceededError: they were not written at the deadline.
        """
        if sum(len(file.data) for file in self._files.values()) <= MAX_ON_LOOP:
            self._write()
            return
        try:
            await run_in_thread(self._write, what="Writing the files", call=invocation, threads=threads)
        except BaseException:
            self._is_abandoned.set()  # the thread may write still, and removes the directory after that
            raise

    def _write(self) -> None:
        try:
            self._directory.mkdir(mode=0o700)
            for path, file in self._files.items():
                self._write_one(path, file.data)
        except OSError as error:
            if not self._is_abandoned.is_set():
                raise ExecutionError(f"the files of the call cannot be written: {error.strerror}") from error
        finally:
            # Asked last: what was written after the caller had removed the directory would stay.
            if self._is_abandoned.is_set():
                remove_folder(self._folder)

    def _write_one(self, path: Path, data: bytes) -> None:
        # O_EXCL: no file that is there is overwritten, and no link followed (open(2)).
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb", buffering=0) as file:
            left = memoryview(data)
            while left and not self._is_abandoned.is_set():
                left = left[file.write(left[:_CHUNK]) :]

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
        # It ends with the suffix of its type: many programs choose by that how to read a file.
        stem = re.sub(r"[^A-Za-z0-9_-]", "_", name)[:_MAX_STEM]
        # Callers choose the keys of objects: what follows a stem that is taken may be taken, too.
        stems = chain([stem], (f"{stem}-{number}" for number in count(len(self._files))))
        return next(path for each in stems if (path := self._directory / f"{each}{suffix}") not in self._files)
