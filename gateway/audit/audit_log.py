"""The audit log file, with one JSON line per record. Never delays a call.

Records that cannot be written stay in the bounded queue of a `BackgroundWriter` and are retried. A record reports the
number of dropped records. For rotation, the file can be moved or truncated: it is reopened when its path refers
to another file or no longer exists.
"""

import json
import os
import stat
import time
from collections.abc import Iterator
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
RETRY_SECONDS: Final = 1.0
_GATHER_SECONDS: Final = 0.02
"""How long a first record waits for others, because waking the thread takes longer than writing."""
SHUTDOWN_GRACE_SECONDS: Final = 2.0
"""The maximum time that the exit waits for the last records."""
# O_APPEND: works with other writers and logrotate's `copytruncate`. O_NONBLOCK: do not wait for the reader of a FIFO
# (fifo(7)).
_FLAGS: Final = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
_MODE: Final = 0o600
"""The mode of a new file. Only the owner can read the records."""


class AuditLog(BackgroundWriter):
    """Writes records between `start` and `stop`. Drops other records silently.

    `refusal_of` checks whether the file can be written.
    """

    def __init__(self, path: Path, *, most_bytes: int = MAX_QUEUED_BYTES, retry_seconds: float = RETRY_SECONDS) -> None:
        self.path: Final = path
        self._file: Final = _File(path)
        super().__init__(
            self._file.write,
            name="audit log",
            max_bytes=most_bytes,
            on_drop=lambda count: _line({"time": timestamp(time.time()), "event": "dropped", "records": count}),
            retry_seconds=retry_seconds,
            gather_seconds=_GATHER_SECONDS,
            on_end=self._finish,
        )

    def stop(self, seconds: float = SHUTDOWN_GRACE_SECONDS) -> None:
        """Wait up to `seconds` for the queued records to be written."""
        if self.has_ended:
            return
        super().stop(seconds)
        if not self.has_ended:  # The disk hangs. Otherwise the thread has reported.
            self._report_lost()

    def _finish(self) -> None:
        self._file.close()
        self._report_lost()

    def _report_lost(self) -> None:
        if lost := self.waiting + self.unreported:
            log.error("audit records lost", file=str(self.path), records=lost)

    def reopen(self) -> None:
        self._file.leave()
        self.retry()

    @property
    def problem(self) -> str | None:
        return self._file.problem

    def append(self, record: JsonObject) -> None:
        """Queue a record with its time. Never waits or raises."""
        # Log once per overflow, not for each record.
        had_room = not self.unreported
        self.put(_line({"time": timestamp(time.time()), **record}))
        if had_room and self.unreported:
            log.error("audit records dropped", file=str(self.path), reason=self.problem or "the disk is too slow")


class _File:
    def __init__(self, path: Path) -> None:
        self.problem: str | None = None
        self._path: Final = path
        self._descriptor = -1
        self._has_left = False
        """Whether the file must be reopened before the next line."""
        self._is_mid_line = False
        """Whether a line was written partially, for example to a full disk."""

    def open(self) -> None:
        descriptor = os.open(self._path, _FLAGS, _MODE)
        # Check the open file, because the path can change.
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise OSError("is not a regular file")
        self._descriptor, self._has_left = descriptor, False
        # A new or truncated file contains no partial line.
        self._is_mid_line = self._is_mid_line and os.fstat(descriptor).st_size > 0

    def leave(self) -> None:
        self._has_left = True

    def write(self, lines: Iterator[bytes]) -> None:
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
            log.info("audit log is writable again", file=str(self._path))
            self.problem = None

    def _append(self, line: bytes) -> None:
        # End a partial line first, which would otherwise corrupt the next record.
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
    """Return why a file cannot be written, or None. Creates a missing file."""
    file = _File(path)
    try:
        file.open()
    except (OSError, ValueError) as error:
        return (getattr(error, "strerror", None) or str(error)).lower()
    file.close()
    return None


def audit_path(section: Audit, root: Path) -> Path:
    """Return the path of the file, relative to the directory of the main file."""
    return root / os.path.expanduser(section.file)  # noqa: PTH111 - Path.expanduser raises for an unknown user


def check_audit_file(loaded: LoadedConfig, problems: Problems) -> None:
    """Report an impossible path. Nothing is created, because `validate` can run as another user.

    Write permission is only checked when the gateway opens the file.
    """
    if loaded.document.audit is None:
        return
    path = audit_path(loaded.document.audit, loaded.root)
    place = problems.at("audit", "file")
    if is_unreadable(path):
        return
    if not is_directory(path.parent):
        place.error(f"{path} cannot be written: directory {path.parent} does not exist")
    elif exists(path) and not is_file(path):
        place.error(f"{path} cannot be written: it is {'a directory' if is_directory(path) else 'not a regular file'}")


def check_audit_is_apart(loaded: LoadedConfig, problems: Problems) -> None:
    """Report a log file that the gateway also reads, because the first record would corrupt it."""
    if loaded.document.audit is None:
        return
    path = audit_path(loaded.document.audit, loaded.root).resolve()
    if path in {file.resolve() for file in (*loaded.files, loaded.lock_file)}:
        problems.at("audit", "file").error("is part of the configuration; use a separate file for the log")


def _line(record: JsonObject) -> bytes:
    """Encode a record as one line. Text from callers can contain characters that some readers treat as line ends."""
    try:
        line = orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE)
        is_shown_as_it_is = line[:-1].decode().isprintable()
    except TypeError:  # A lone surrogate or an integer of more than 64 bits.
        is_shown_as_it_is = False
    return (
        line if is_shown_as_it_is else json.dumps(record, default=repr, separators=(",", ":")).encode("ascii") + b"\n"
    )
