"""The audit log: a file of records, one line of JSON each, that never makes a call wait.

A `BackgroundWriter` writes it. Records that cannot be written (a full disk, a directory that was removed) stay in its
bounded queue and are tried again; a record of its own tells of those that were dropped. The file may be moved away or
truncated to rotate it: it is opened again when its name leads to another file, or to none.
"""

import json
import os
import stat
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import orjson
import structlog

from gateway.config.diagnostics.problems import Problems
from gateway.config.loader import LoadedConfig
from gateway.config.machine_facts import exists, is_directory, is_file, is_unreadable
from gateway.config.models.document import Audit
from gateway.json_types import JsonObject
from gateway.rfc3339 import timestamp
from gateway.telemetry.background_writer import BackgroundWriter

log: Final = structlog.get_logger(__name__)

MAX_QUEUED_BYTES: Final = 32 * 2**20
"""Of queued records."""
RETRY_SECONDS: Final = 1.0
"""Between two attempts to write to a file that cannot be written."""
_GATHER_SECONDS: Final = 0.02
"""In which the first of several records waits for the others: waking the thread takes longer than writing one."""
SHUTDOWN_GRACE_SECONDS: Final = 2.0
"""Longest wait of the process's end for the last records."""
# O_APPEND: what others append, or a rotation cuts (logrotate's `copytruncate`), stays as it is. O_NONBLOCK: opening a
# FIFO would otherwise wait for its reader (fifo(7)).
_FLAGS: Final = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
_MODE: Final = 0o600
"""Of a new file. Its records tell who did what, so that only the owner may read them."""


class AuditLog(BackgroundWriter):
    """The file, between `start` and `stop`; before and after, records are dropped in silence.

    `refusal_of` tells before `start` whether the file can be written.
    """

    def __init__(self, path: Path, *, most_bytes: int = MAX_QUEUED_BYTES, retry_seconds: float = RETRY_SECONDS) -> None:
        self.path: Final = path
        self._file: Final = _File(path)
        super().__init__(
            self._file,
            name="audit log",
            max_bytes=most_bytes,
            on_drop=lambda count: _line({"time": timestamp(time.time()), "event": "dropped", "records": count}),
            retry_seconds=retry_seconds,
            gather_seconds=_GATHER_SECONDS,
            on_end=self._report_lost,
        )

    def stop(self, seconds: float = SHUTDOWN_GRACE_SECONDS) -> None:
        """Write the queued records, as far as that is possible in this time."""
        if self.has_ended:
            return
        super().stop(seconds)
        if not self.has_ended:  # the disk hangs; otherwise the thread has told at its end
            self._report_lost()

    def _report_lost(self) -> None:
        if lost := self.waiting + self.unreported:
            log.error("audit records lost", file=str(self.path), records=lost)

    def reopen(self) -> None:
        """Continue in the file that has the name now, as after a rotation."""
        self._file.leave()
        self.retry()

    @property
    def problem(self) -> str | None:
        """Why nothing can be written now."""
        return self._file.problem

    def append(self, record: JsonObject) -> None:
        """Queue a record, with the time in front of it. Never waits, and never raises for what is in it."""
        # Said once each time that the queue overflows: the log would grow by a line for each record otherwise.
        had_room = not self.unreported
        self.put(_line({"time": timestamp(time.time()), **record}))
        if had_room and self.unreported:
            log.error("audit records dropped", file=str(self.path), reason=self.problem or "the disk is too slow")


class _File:
    """The file as the sink of records: its descriptor, and how far the last line got."""

    def __init__(self, path: Path) -> None:
        self.problem: str | None = None
        self._path: Final = path
        self._descriptor = -1
        self._has_left = False
        """Whether the file is to be opened again before the next line."""
        self._is_mid_line = False
        """Whether only a part of a line was written, as on a disk that became full."""

    def open(self) -> None:
        descriptor = os.open(self._path, _FLAGS, _MODE)
        # Asked of what is open: a name that was asked before may lead elsewhere by now.
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise OSError("is not a regular file")
        self._descriptor, self._has_left = descriptor, False
        # In a file that is new, or was truncated, no half line stands before the next.
        self._is_mid_line = self._is_mid_line and os.fstat(descriptor).st_size > 0

    def leave(self) -> None:
        self._has_left = True

    def write(self, lines: Iterator[bytes]) -> None:
        """Append lines to the file that has the name now."""
        try:
            if self._has_left or not self._is_where_it_was():
                self.close()
                self.open()
            for line in lines:
                self._append(line)
        except OSError as error:
            self._report(error)
            raise
        if self.problem is not None:
            log.info("audit log written again", file=str(self._path))
            self.problem = None

    def _append(self, line: bytes) -> None:
        """Append a line with one system call, as far as the system takes it at once."""
        # The half of a line is ended first: it would spoil the next record, too.
        rest = b"\n" + line if self._is_mid_line else line
        while rest:
            written = os.write(self._descriptor, rest)
            rest = rest[written:]
            self._is_mid_line = bool(rest)

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _report(self, error: OSError) -> None:
        problem = (error.strerror or str(error)).lower()
        if problem != self.problem:
            self.problem = problem
            log.error("audit log cannot be written", file=str(self._path), reason=problem)

    def _is_where_it_was(self) -> bool:
        if self._descriptor < 0:
            return False
        try:
            there = self._path.stat()
        except OSError:
            return False
        return os.path.samestat(there, os.fstat(self._descriptor))


def refusal_of(path: Path) -> str | None:
    """Return why a file cannot be appended to; None if it can. Creates the file if there is none."""
    file = _File(path)
    try:
        file.open()
    except (OSError, ValueError) as error:
        return (getattr(error, "strerror", None) or str(error)).lower()
    file.close()
    return None


def audit_path(section: Audit, root: Path) -> Path:
    """Return the path of the file; a relative one begins at the directory of the main file."""
    return root / os.path.expanduser(section.file)  # noqa: PTH111 - Path.expanduser raises for a user that is not there


def check_audit_file(loaded: LoadedConfig, problems: Problems) -> None:
    """Report a path at which there can be no file, and create nothing: `validate` may run as another user.

    Whether the daemon may write it is known once it opens it.
    """
    if loaded.document.audit is None:
        return
    path = audit_path(loaded.document.audit, loaded.root)
    place = problems.at("audit", "file")
    if is_unreadable(path):
        return
    if not is_directory(path.parent):
        place.error(f"{path} cannot be written: there is no directory {path.parent}")
    elif exists(path) and not is_file(path):
        place.error(f"{path} cannot be written: it is {'a directory' if is_directory(path) else 'not a regular file'}")


def check_audit_is_apart(loaded: LoadedConfig, problems: Problems, *, reserved: Iterable[str]) -> None:
    """Refuse a log file that the daemon also reads, because the first record would break it.

    Args:
        loaded: the configuration.
        problems: takes the refusal.
        reserved: names of files beside the configuration that the daemon reads.
    """
    if loaded.document.audit is None:
        return
    path = audit_path(loaded.document.audit, loaded.root).resolve()
    if path in {file.resolve() for file in (*loaded.files, *(loaded.root / name for name in reserved))}:
        problems.at("audit", "file").error("belongs to the configuration; the log needs a file of its own")


def _line(record: JsonObject) -> bytes:
    """A record as one line for every reader: callers choose text that some readers take for the end of a line."""
    try:
        line = orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE)
        is_shown_as_it_is = line[:-1].decode().isprintable()
    except TypeError:  # a lone surrogate, or an integer of more than 64 bits
        is_shown_as_it_is = False
    return (
        line if is_shown_as_it_is else json.dumps(record, default=repr, separators=(",", ":")).encode("ascii") + b"\n"
    )
