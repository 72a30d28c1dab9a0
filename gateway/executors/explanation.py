"""The seam beside `Executor`: what would be done with an invocation, said in place of doing it.

Why each executor says it of itself: what is shown comes out of the code that builds what runs, so that the two cannot
come apart.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from gateway.executors.invocation import Invocation
from gateway.json_types import Json, empty


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """What a backend would do. Whoever shows it masks the file's secrets first."""

    does: str
    """The sentence that begins with the primitive's name: "runs a command"."""
    facts: Mapping[str, Json] = field(default_factory=empty)
    """By name, in the order in which a person wants to know them; what does not apply is not there."""


@runtime_checkable
class Explainable(Protocol):
    """An executor, or a prompt's messages, that can say what it would do. All of ours can."""

    def explain(self, invocation: Invocation) -> Explanation:
        """Say what `execute` or `render` would do, and do nothing of it.

        Raises:
            ExecutionError: it could not be done; the same that they would raise before they begin.
        """
