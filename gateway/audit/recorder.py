"""Opens the audit log before the gateway listens, replaces the log on reloads, and closes it at shutdown.

Only `serve` writes an audit log. Other commands, such as `mcp-gateway call`, run as users who could also run the
configured programs directly, and who often have no permission to write the log.
"""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, Protocol

from gateway import __version__
from gateway.access.auth_error import AuthError
from gateway.audit.audit_log import AuditLog, audit_path, refusal_of
from gateway.audit.records import (
    call_record,
    compile_labels,
    confirmation_record,
    denial_record,
    digest_key,
    input_request_records,
    task_record,
)
from gateway.config.diagnostics.problems import Problems
from gateway.config.models.document import Audit, Document
from gateway.errors import ConfigError, Location, Problem
from gateway.json_types import Json
from gateway.language.templates.templating import TextTemplate
from gateway.tasks.task import Task
from gateway.telemetry.observer import CallFacts, CallResult

MAX_BURST: Final = 20.0
"""How many denial records can be written at once. After such a burst, one record per second is written."""


class ServedConfig(Protocol):
    """The parts of the configuration that the audit log needs."""

    @property
    def document(self) -> Document: ...
    @property
    def root(self) -> Path: ...
    @property
    def digest(self) -> str: ...
    @property
    def lock_differences(self) -> Sequence[str]: ...
    @property
    def audit_place(self) -> tuple[Location | None, str]: ...


class AuditRecorder:
    """Records calls, reloads and denied requests if the configuration contains the section `audit`."""

    def __init__(self, *, key: bytes, generation: Callable[[], int]) -> None:
        self._digest_key: Final = digest_key(key)
        self._generation: Final = generation
        self._denials: Final = DenialLogLimiter()
        self._section: Audit | None = None
        self._labels: Mapping[str, TextTemplate] = {}
        self._log: AuditLog | None = None
        self._replaced_written = self._replaced_dropped = 0
        """Counts of the logs that a reload has replaced, because metrics counters must not decrease."""

    def open(self, served: ServedConfig) -> None:
        """Start recording. Raise ConfigError if the audit log file cannot be written."""
        self.check(served)
        self._follow(served)
        self._note({"event": "started", "version": __version__, **self._facts(served)})

    def close(self) -> None:
        self._note({"event": "stopped"})
        if self._log is not None:
            self._log.stop()

    def check(self, served: ServedConfig) -> None:
        """Raise ConfigError if the audit log file of a new configuration cannot be written. This call blocks."""
        if served.document.audit is None:
            return
        path = audit_path(served.document.audit, served.root)
        if (refusal := refusal_of(path)) is not None:
            location, line = served.audit_place
            message = f"{path} cannot be written: {refusal}"
            raise ConfigError([Problem(message=message, path="audit.file", location=location, source_line=line)])

    def serve(self, served: ServedConfig) -> None:
        """Switch to the configuration of a successful reload, and record the reload."""
        self._follow(served)
        self._note({"event": "reloaded", **self._facts(served)})

    def refuse(self, error: ConfigError) -> None:
        self._note({"event": "reload refused", "problems": len(error.errors), "first": str(error.errors[0])})

    def denied(self, denied: AuthError, address: str, path: str) -> None:
        if self._log is not None and (suppressed := self._denials.allows()) is not None:
            self._log.append(denial_record(denied, address=address, path=path, suppressed=suppressed))

    @property
    def status(self) -> dict[str, Json] | None:
        """The `audit` section of `/-/status`, or None without an audit log."""
        if self._log is None:
            return None
        return {
            "file": str(self._log.path),
            "written": self.written,
            "waiting": self._log.waiting,
            "dropped": self.dropped,
            "trouble": self._log.problem,
        }

    @property
    def written(self) -> int:
        return self._replaced_written + (0 if self._log is None else self._log.written)

    @property
    def dropped(self) -> int:
        return self._replaced_dropped + (0 if self._log is None else self._log.dropped)

    @property
    def is_failing(self) -> bool:
        return self._log is not None and self._log.problem is not None

    def began(self, call: CallFacts) -> None:
        """Do nothing, because a call is recorded when it ends."""

    def ended(self, call: CallFacts, ending: CallResult) -> None:
        if self._log is not None and self._section is not None:
            keeps_arguments = self._section.arguments == "full"
            record = call_record(
                call, ending, key=self._digest_key, keeps_arguments=keeps_arguments, labels=self._labels
            )
            self._log.append(record)

    def input_requested(self, call: CallFacts, methods: Mapping[str, str]) -> None:
        if self._log is not None:
            for record in input_request_records(call, methods):
                self._log.append(record)

    def confirmed(self, call: CallFacts, answer: str) -> None:
        if self._log is not None:
            self._log.append(confirmation_record(call, answer))

    def task_changed(self, task: Task) -> None:
        if self._log is not None:
            self._log.append(task_record(task))

    def _follow(self, served: ServedConfig) -> None:
        section = served.document.audit
        # The problems are ignored, because the labels compiled without problems when the file was loaded.
        self._labels = compile_labels(served.document, Problems())
        if section == self._section:
            return
        self._section = section
        path = None if section is None else audit_path(section, served.root)
        if self._log is None or self._log.path != path:  # Two writers of one file would mix their records.
            self._replace()
        if path is not None and self._log is None:
            self._log = AuditLog(path)
            self._log.start()

    def _replace(self) -> None:
        """Stop the current log. Its thread still writes the queued records."""
        if self._log is not None:
            self._log.end()
            self._replaced_written += self._log.written + self._log.waiting
            self._replaced_dropped += self._log.dropped
        self._log = None

    def _facts(self, served: ServedConfig) -> dict[str, Json]:
        differs = [*served.lock_differences]
        facts: dict[str, Json] = {"generation": self._generation(), "files_sha256": served.digest}
        return {**facts, "differs": differs} if differs else facts

    def _note(self, record: Mapping[str, Json]) -> None:
        if self._log is not None:
            self._log.append({**record, "pid": os.getpid()})


class DenialLogLimiter:
    """Limits denial records with a token bucket, so that clients without credentials cannot fill the disk."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock: Final = clock
        self._left = MAX_BURST
        self._at = clock()
        self._suppressed = 0

    def allows(self) -> int | None:
        """Return None to suppress a record, or the number of records suppressed since the last allowed record."""
        now = self._clock()
        self._left = min(MAX_BURST, self._left + now - self._at)
        self._at = now
        if self._left < 1:
            self._suppressed += 1
            return None
        self._left -= 1
        suppressed, self._suppressed = self._suppressed, 0
        return suppressed
