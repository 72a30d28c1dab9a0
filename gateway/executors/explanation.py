"""Explanations: the protocol by which an executor says what it would do with an invocation.

Why each executor explains itself: the explanation comes out of the code that builds what runs, so both
agree.
"""

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

import msgspec

from gateway.executors.invocation import Invocation
from gateway.json_types import Json, empty


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """Describes what a backend would do. Secrets are not masked yet: the code that shows it masks them."""

    does: str
    """The sentence that begins with the primitive's name: "runs a command"."""
    facts: Mapping[str, Json] = msgspec.field(default_factory=empty)
    """By name, the most important first; what does not apply is left out."""


@runtime_checkable
class Explainable(Protocol):
    """An executor, or a prompt's messages, that can say what it would do. All of ours can."""

    def explain(self, invocation: Invocation) -> Explanation:
        """Say what `execute` or `render` would do, and do nothing of it.

        Raises:
            ExecutionError: it could not be done; the same that they would raise before they begin.
        """
