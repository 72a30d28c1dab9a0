"""Models of tasks: `task` of a tool, `defaults.task`, `limits.tasks`."""

from datetime import timedelta
from typing import Annotated, Literal

from gateway.config.models.base import Count, Model, PositiveCount, value_for
from gateway.config.models.quantities import Duration, PositiveDuration

TaskMode = Literal["never", "optional", "required"]


class ToolTask(Model):
    """Whether a call of the tool becomes a task, which outlives its request (`io.modelcontextprotocol/tasks`)."""

    mode: TaskMode
    """`never`: calls are ordinary. `optional`: a call becomes a task if the client has declared the extension.
    `required`: calls are always tasks, and other clients are rejected (-32021)."""
    after: Duration = timedelta()
    """With `optional`: calls that finish within this time are answered directly. Longer calls become tasks."""
    ttl: PositiveDuration | None = None
    """How long the task is kept after its creation. A task that is still running then is stopped. Default 1h."""
    poll: PositiveDuration = timedelta(seconds=1)
    """How often clients should poll for the status (a hint). It increases with the age of the task, up to ten times."""
    ask: Literal["inside", "before"] = "inside"
    """When to ask the client: inside the task, which then waits for input, or before the task is created."""
    restart: Count = 0
    """How often the tool is started again after its process dies. Requires `annotations.idempotent`. After that, the
    task fails."""


WrittenToolTask = Annotated[ToolTask, value_for("mode", {"type": "string", "enum": ["never", "optional", "required"]})]
"""Only the mode, or a mapping."""


class TaskDefaults(Model):
    """Defaults of tasks."""

    ttl: PositiveDuration = timedelta(hours=1)
    """How long a task is kept after its creation."""


class TaskLimits(Model):
    """Limits of tasks. Tasks that have ended do not count."""

    per_caller: PositiveCount | None = None
    """Tasks of one caller. Default: half of `total`."""
    total: PositiveCount = 10_000
    """Tasks of all callers together."""
    ttl: PositiveDuration | None = None
    """Maximum time that a task is kept. Longer times in tools are reduced to it."""
