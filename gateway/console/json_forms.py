"""JSON formats of durations, session ids and problems."""

import hashlib
from collections.abc import Sequence
from typing import Final

from gateway.catalog.store import CatalogStore
from gateway.config.diagnostics.render import excerpt
from gateway.errors import Problem
from gateway.json_types import Json
from gateway.reload.candidate import Candidate
from gateway.reload.reloader import Reloader

# 48 bits identify the sessions of a daemon without revealing their ids.
_ID_LENGTH: Final = 12


def milliseconds(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1000, 3)


def short_id(session_id: str) -> str:
    """Return the public id of a session. The real id would allow a reader to use the session."""
    return hashlib.sha256(session_id.encode()).hexdigest()[:_ID_LENGTH]


def current_problems(reloader: Reloader[Candidate], store: CatalogStore) -> Sequence[Problem]:
    """Return the problems of the last reload, then the warnings of the served catalog."""
    return [*reloader.status.problems, *store.current.warnings]


def problem_json(problem: Problem) -> dict[str, Json]:
    """Return `Problem` of the API. Its text is already masked."""
    location = problem.location
    return {
        "message": problem.message,
        "path": problem.path or None,
        "file": None if location is None else str(location.file),
        "line": None if location is None else location.line,
        "column": None if location is None else location.column,
        "excerpt": excerpt(problem),
        "severity": problem.severity.value,
    }
