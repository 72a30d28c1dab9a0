"""The audit log of a daemon: opened before it listens, changed by a reload, flushed at its end.

Only a daemon keeps one. Who runs `mcp-gateway call` with a file could run what the file says as well, and may not be
allowed to write to the daemon's log.
"""

import os
from collections.abc import Callable, Mapping
from typing import Final

from gateway import __version__
from gateway.access.audit_log import AuditLog, refusal_of
from gateway.access.denial import Denial
from gateway.access.denials import Denials
from gateway.app.audit_file import audit_path
from gateway.app.offer import Build
from gateway.catalog.primitives import Catalog
from gateway.config.audit import Audit
from gateway.errors import ConfigError, Problem
from gateway.json_types import Json
from gateway.protocol.audit_trail import AuditTrail
from gateway.protocol.calls import Call, Ending
from gateway.protocol.questions import Question
from gateway.protocol.request import RequestContext

_LONGEST: Final = 256
"""Characters of what a caller chose."""


class Auditing:
    """An observer of calls, and a witness of what they ask; records nothing while there is no `audit` in the file."""

    def __init__(self, *, key: bytes, whole: Callable[[], Catalog]) -> None:
        self._key: Final = key
        self._whole: Final = whole
        self._denials: Final = Denials()
        self._section: Audit | None = None
        self._log: AuditLog | None = None
        self._trail: AuditTrail | None = None
        self._lost = self._written = 0
        """Of logs that were closed."""

    def open(self, build: Build) -> None:
        """Begin to record.

        Raises:
            ConfigError: the file cannot be written.
        """
        self.check(build)
        self._follow(build)
        self._note({"event": "started", "version": __version__, **self._offered(build)})

    def close(self) -> None:
        """Write what is left."""
        self._note({"event": "stopped"})
        self._stop()

    def check(self, build: Build) -> None:
        """Refuse a build whose audit log could not be written. Blocking.

        Raises:
            ConfigError: its file cannot be written.
        """
        if build.document.audit is None:
            return
        path = audit_path(build.document.audit, build.root)
        if (refusal := refusal_of(path)) is not None:
            location, line = build.audit_place
            message = f"{path} cannot be written: {refusal}"
            raise ConfigError([Problem(message=message, path="audit.file", location=location, source_line=line)])

    def serve(self, build: Build) -> None:
        """Record that this is served from now on, in the file that it names."""
        self._follow(build)
        self._note({"event": "reloaded", **self._offered(build)})

    def refuse(self, error: ConfigError) -> None:
        """Record that what is on disk is not served."""
        self._note({"event": "reload refused", "problems": len(error.errors), "first": str(error.errors[0])})

    def denied(self, denial: Denial, address: str, path: str) -> None:
        """Record that somebody was not let in; nothing of the credential is known here."""
        if self._log is not None and (others := self._denials.take()) is not None:
            facts = {"address": address, "path": path[:_LONGEST], "status": denial.status, "error": denial.error}
            self._log.append({"event": "denied", **facts, "others": others})

    def reopen(self) -> None:
        if self._log is not None:
            self._log.reopen()

    @property
    def status(self) -> dict[str, Json] | None:
        """What `/-/status` shows; None where nothing is recorded."""
        if self._log is None:
            return None
        return {
            "file": str(self._log.path),
            "written": self.written,
            "waiting": self._log.waiting,
            "dropped": self.dropped,
            "trouble": self._log.trouble,
        }

    @property
    def written(self) -> int:
        return self._written + (0 if self._log is None else self._log.written)

    @property
    def dropped(self) -> int:
        return self._lost + (0 if self._log is None else self._log.dropped)

    @property
    def is_failing(self) -> bool:
        return self._log is not None and self._log.trouble is not None

    def began(self, call: Call) -> None:
        """Nothing: see `AuditTrail`."""

    def ended(self, call: Call, ending: Ending) -> None:
        if self._trail is not None:
            self._trail.ended(call, ending)

    def asked(self, request: RequestContext, questions: Mapping[str, Question]) -> None:
        if self._trail is not None:
            self._trail.asked(request, questions)

    def confirmed(self, request: RequestContext, answer: str) -> None:
        if self._trail is not None:
            self._trail.confirmed(request, answer)

    def _follow(self, build: Build) -> None:
        section = build.document.audit
        if section == self._section:
            return
        self._section = section
        self._stop()
        if section is None:
            return
        self._log = log = AuditLog(audit_path(section, build.root))
        log.start()
        keeps_arguments = section.arguments == "full"
        self._trail = AuditTrail(log.append, whole=self._whole, keeps_arguments=keeps_arguments, key=self._key)

    def _stop(self) -> None:
        if self._log is not None:
            self._log.stop()
            self._written, self._lost = self.written, self.dropped
        self._log = self._trail = None

    def _offered(self, build: Build) -> dict[str, Json]:
        """What is served: its files as one hash, and what of it is not as it was locked."""
        differs = [str(difference) for difference in build.catalog.unlike]
        served: dict[str, Json] = {"generation": self._whole().generation, "files_sha256": build.digest}
        return {**served, "differs": differs} if differs else served

    def _note(self, record: Mapping[str, Json]) -> None:
        if self._log is not None:
            self._log.append({**record, "pid": os.getpid()})
