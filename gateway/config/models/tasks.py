"""The models of tasks: `task` of a tool, `defaults.task`, `limits.tasks`."""

from datetime import timedelta
from typing import Annotated, Literal

from gateway.config.models.base import Count, Model, PositiveCount, value_for
from gateway.config.models.quantities import Duration, PositiveDuration

TaskMode = Literal["never", "optional", "required"]


class ToolTask(Model):
    """Whether a call of the tool becomes a task, which outlives its request (`io.modelcontextprotocol/tasks`)."""

    mode: TaskMode
    """`never`: calls are ordinary. `optional`: a call becomes a task where the client has declared the extension.
    `required`: so it does, and other clients are refused (-32021)."""
    after: Duration = timedelta()
    """With `optional`: what is done by then is answered directly, and only the rest becomes a task."""
    ttl: PositiveDuration | None = None
    """How long the task is kept from its creation; one that still runs then is stopped. Default 1h."""
    poll: PositiveDuration = timedelta(seconds=1)
    """How often clients should ask for its status (a hint); grows with the task's age to ten times."""
    ask: Literal["inside", "before"] = "inside"
    """Where questions to the client are put: inside the task, which then waits for input, or before there is one."""
    restart: Count = 0
    """How often the tool is begun again after the process that ran it died; needs `annotations.idempotent`. Otherwise
    the task has failed then."""


WrittenToolTask = Annotated[ToolTask, value_for("mode", {"type": "string", "enum": ["never", "optional", "required"]})]
"""The mode alone, or all of it."""


class TaskDefaults(Model):
    """Defaults of tasks."""

    ttl: PositiveDuration = timedelta(hours=1)
    """How long a task is kept from its creation."""


class TaskLimits(Model):
    """Limits of tasks; those that have ended do not count."""

    per_caller: PositiveCount | None = None
    """Tasks of one caller. Default: half of `total`."""
    total: PositiveCount = 10_000
    """Tasks of all callers together."""
    ttl: PositiveDuration | None = None
    """The longest time that a task is kept; a longer one that a tool asks for is cut to it."""
