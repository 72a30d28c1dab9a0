"""A file to which records are appended, one line of JSON each, without ever making a call wait.

A thread of its own writes. What it cannot write (a full disk, a directory that was taken away) stays in a bounded queue
and is tried again; what does not fit into that is dropped, counted, and confessed in a record of its own once there is
room. The file may be moved away or truncated by whoever rotates logs: it is opened anew when its name leads elsewhere.
"""

import json
import os
import stat
import threading
import time
from collections import deque
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import orjson
import structlog

from gateway.json_types import JsonObject

log: Final = structlog.get_logger(__name__)

MOST_BYTES: Final = 32 * 2**20
"""Of records that wait to be written."""
RETRY_SECONDS: Final = 1.0
"""Between two attempts to write what could not be written."""
GATHER_SECONDS: Final = 0.02
"""For which the first of several records waits for the others: waking the thread takes longer than writing one."""
FAREWELL_SECONDS: Final = 2.0
"""How long the end of the process waits for the last records."""
_FLAGS: Final = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
_MODE: Final = 0o600
"""Of a new file: it tells who did what."""


class AuditLog:
    """The file, between `start` and `stop`; before and after, records are dropped in silence."""

    def __init__(self, path: Path, *, most_bytes: int = MOST_BYTES, retry_seconds: float = RETRY_SECONDS) -> None:
        self.path: Final = path
        self.written = 0
        """Records in the file."""
        self.dropped = 0
        """Records that there was no room for."""
        self.trouble: str | None = None
        """Why nothing can be written now."""
        self._most_bytes: Final = most_bytes
        self._retry_seconds: Final = retry_seconds
        self._file: Final = _File(path)
        self._wake: Final = threading.Condition()
        self._waiting: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._unconfessed = 0
        """Dropped records that no record tells of yet."""
        self._is_open = False
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to take records. Whether the file can be written `refusal_of` tells before."""
        self._is_open = True
        self._thread = threading.Thread(target=self._run, name="audit log", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Write what waits, as far as that is possible in a moment."""
        with self._wake:
            self._is_open = False
            self._wake.notify()
        if self._thread is not None:
            self._thread.join(FAREWELL_SECONDS)
        if self._waiting or self._unconfessed:
            log.error("audit records lost", file=str(self.path), records=len(self._waiting) + self._unconfessed)

    def reopen(self) -> None:
        """Go on in the file that has the name now: after it was rotated."""
        self._file.leave()
        with self._wake:
            self._wake.notify()

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def append(self, record: JsonObject) -> None:
        """Have a record written soon, with the time in front of it. Never waits, and never raises for what is in it."""
        line = _line({"time": _now(), **record})
        with self._wake:
            if not self._is_open:
                return
            if self._waiting_bytes + len(line) > self._most_bytes:
                self.dropped += 1
                self._unconfessed += 1
                is_first = self._unconfessed == 1
            else:
                if not self._waiting:
                    self._wake.notify()
                self._waiting.append(line)
                self._waiting_bytes += len(line)
                return
        if is_first:
            log.error("audit records dropped", file=str(self.path), reason=self.trouble or "the disk is too slow")

    def _run(self) -> None:
        while True:
            with self._wake:
                self._wake.wait_for(lambda: self._waiting or self._unconfessed or not self._is_open)
                if not self._waiting and not self._unconfessed:
                    break
                self._wake.wait_for(lambda: not self._is_open, GATHER_SECONDS)
            if self._write_all():
                continue
            with self._wake:
                if not self._is_open:
                    break  # nobody waits for the disk to be mended
                self._wake.wait(self._retry_seconds)
        self._file.close()

    def _write_all(self) -> bool:
        """Write what waits, oldest first; False if the file takes no more. Only this thread takes from the queue."""
        try:
            self._file.follow_name()
            while self._waiting:
                line = self._waiting[0]
                self._file.write(line)
                with self._wake:
                    self._waiting.popleft()
                    self._waiting_bytes -= len(line)
                    self.written += 1
            if self._unconfessed:
                self._confess()
        except OSError as error:
            self._report(error)
            return False
        if self.trouble is not None:
            log.info("audit log written again", file=str(self.path))
            self.trouble = None
        return True

    def _confess(self) -> None:
        count = self._unconfessed
        self._file.write(_line({"time": _now(), "event": "dropped", "records": count}))
        with self._wake:
            self._unconfessed -= count
        self.written += 1

    def _report(self, error: OSError) -> None:
        trouble = (error.strerror or str(error)).lower()
        if trouble != self.trouble:
            self.trouble = trouble
            log.error("audit log cannot be written", file=str(self.path), reason=trouble)


class _File:
    """The descriptor, and where it stands."""

    def __init__(self, path: Path) -> None:
        self._path: Final = path
        self._descriptor = -1
        self._has_left = False
        """Whether another file is to be opened before the next line."""
        self._is_mid_line = False
        """Whether a line was written in part, as on a disk that became full."""

    def open(self) -> None:
        descriptor = os.open(self._path, _FLAGS, _MODE)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise OSError("is not a regular file")
        self._descriptor, self._has_left = descriptor, False
        self._is_mid_line = self._is_mid_line and os.fstat(descriptor).st_size > 0

    def leave(self) -> None:
        self._has_left = True

    def follow_name(self) -> None:
        """Open the file anew where its name leads elsewhere, or nowhere."""
        if self._has_left or not self._is_where_it_was():
            self.close()
            self.open()

    def write(self, line: bytes) -> None:
        """Append a line with one call, as far as the system takes it at once."""
        rest = b"\n" + line if self._is_mid_line else line
        while rest:
            written = os.write(self._descriptor, rest)
            rest = rest[written:]
            self._is_mid_line = bool(rest)

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _is_where_it_was(self) -> bool:
        if self._descriptor < 0:
            return False
        try:
            there = self._path.stat()
        except OSError:
            return False
        return os.path.samestat(there, os.fstat(self._descriptor))


def refusal_of(path: Path) -> str | None:
    """Why a file cannot be appended to; None if it can. Makes it where there is none."""
    file = _File(path)
    try:
        file.open()
    except (OSError, ValueError) as error:
        return (getattr(error, "strerror", None) or str(error)).lower()
    file.close()
    return None


def _now() -> str:
    """RFC 3339, UTC, milliseconds."""
    return datetime.fromtimestamp(time.time(), UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _line(record: JsonObject) -> bytes:
    """A record in one line, whoever reads it: callers choose text that some readers take for the end of a line."""
    try:
        line = orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE)
        is_shown_as_it_is = line[:-1].decode().isprintable()
    except TypeError:  # a lone surrogate, or an integer of more than 64 bits
        is_shown_as_it_is = False
    return (
        line if is_shown_as_it_is else json.dumps(record, default=repr, separators=(",", ":")).encode("ascii") + b"\n"
    )
