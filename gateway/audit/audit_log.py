"""Writes audit records to a file, one JSON line per record, without delaying calls.

A `BackgroundWriter` queues the records and retries failed writes. If its bounded queue overflows, a later record
reports how many records were dropped. Log rotation can move or truncate the file. The writer reopens the file when the
path refers to another file or no longer exists.
"""

import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import structlog

from gateway.config.diagnostics.problems import Problems
from gateway.config.loader import LoadedConfig
from gateway.config.machine_facts import exists, is_directory, is_file, is_unreadable
from gateway.config.models.document import Audit
from gateway.json_types import JsonObject
from gateway.rfc3339 import timestamp
from gateway.telemetry.background_writer import BackgroundWriter
from gateway.telemetry.logs import json_line

log: Final = structlog.get_logger(__name__)

MAX_QUEUED_BYTES: Final = 32 * 2**20
RETRY_SECONDS: Final = 1.0
_GATHER_SECONDS: Final = 0.02
"""Seconds to wait for further records before a write. Batches are cheaper, because waking the thread is slow."""
SHUTDOWN_GRACE_SECONDS: Final = 2.0
"""Maximum seconds that the shutdown waits for queued records to be written."""
# O_APPEND supports other writers and logrotate's `copytruncate`. O_NONBLOCK avoids waiting for the reader of a FIFO
# (fifo(7)).
_FLAGS: Final = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
_MODE: Final = 0o600
"""The mode of a new audit log file, which only the owner of the file can read."""


class AuditLog(BackgroundWriter):
    """Writes records between `start` and `stop`, and silently drops records outside this period."""

    def __init__(self, path: Path, *, most_bytes: int = MAX_QUEUED_BYTES, retry_seconds: float = RETRY_SECONDS) -> None:
        self.path: Final = path
        self.problem: str | None = None
        self._descriptor = -1
        self._is_mid_line = False
        """Whether the last line was written only partially, for example because the disk was full."""
        super().__init__(
            self._write,
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
        if not self.has_ended:  # The disk hangs. A thread that ends reports lost records itself.
            self._report_lost()

    def append(self, record: JsonObject) -> None:
        """Add the current time to a record and queue the record, without waiting or raising."""
        # Log once per overflow, not for each record.
        had_room = not self.unreported
        self.put(_line({"time": timestamp(time.time()), **record}))
        if had_room and self.unreported:
            log.error("audit records dropped", file=str(self.path), reason=self.problem or "the disk is too slow")

    def _finish(self) -> None:
        self._close()
        self._report_lost()

    def _report_lost(self) -> None:
        if lost := self.waiting + self.unreported:
            log.error("audit records lost", file=str(self.path), records=lost)

    def _write(self, lines: Iterator[bytes]) -> None:
        try:
            if not self._is_where_it_was():
                self._close()
                self._descriptor = _opened(self.path)
                # A new or truncated file contains no partial line.
                self._is_mid_line = self._is_mid_line and os.fstat(self._descriptor).st_size > 0
            for line in lines:
                self._write_line(line)
        except OSError as error:
            self._report(error)
            raise
        if self.problem is not None:
            log.info("audit log is writable again", file=str(self.path))
            self.problem = None

    def _write_line(self, line: bytes) -> None:
        # End a partial line first, because the line would otherwise corrupt the next record.
        rest = b"\n" + line if self._is_mid_line else line
        while rest:
            written = os.write(self._descriptor, rest)
            rest = rest[written:]
            self._is_mid_line = bool(rest)

    def _close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _report(self, error: OSError) -> None:
        problem = (error.strerror or str(error)).lower()
        if problem != self.problem:
            self.problem = problem
            log.error("audit log cannot be written", file=str(self.path), reason=problem)

    def _is_where_it_was(self) -> bool:
        if self._descriptor < 0:
            return False
        try:
            there = self.path.stat()
        except OSError:
            return False
        return os.path.samestat(there, os.fstat(self._descriptor))


def _opened(path: Path) -> int:
    descriptor = os.open(path, _FLAGS, _MODE)
    # Check the open file, because the path can change.
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError("is not a regular file")
    return descriptor


def refusal_of(path: Path) -> str | None:
    """Create the audit log file if it is missing. Return why the file cannot be written, or None."""
    try:
        os.close(_opened(path))
    except (OSError, ValueError) as error:
        return (getattr(error, "strerror", None) or str(error)).lower()
    return None


def audit_path(section: Audit, root: Path) -> Path:
    """Resolve `audit.file` against the directory of the main configuration file."""
    return root / os.path.expanduser(section.file)  # noqa: PTH111 - Path.expanduser raises for an unknown user


def check_audit_file(loaded: LoadedConfig, problems: Problems) -> None:
    """Report an error if `audit.file` is not a regular file or its directory is missing. Do not create the file.

    Write permission is not checked, because `validate` can run as a different user than the gateway.
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
    """Report an audit log that is also a configuration file, because the first record would corrupt the file."""
    if loaded.document.audit is None:
        return
    path = audit_path(loaded.document.audit, loaded.root).resolve()
    if path in {file.resolve() for file in (*loaded.files, loaded.lock_file)}:
        problems.at("audit", "file").error("is part of the configuration. Use a separate file for the log")


def _line(record: JsonObject) -> bytes:
    return f"{json_line(record)}\n".encode()
