"""Problems of the operator's files, as the API has them."""

from gateway.config.diagnostics.render import excerpt
from gateway.errors import Problem
from gateway.json_types import Json


def problem_json(problem: Problem) -> dict[str, Json]:
    """`Problem` of the API. What its text quotes is masked already."""
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
