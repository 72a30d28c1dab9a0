"""Compiles `task:` of a tool."""

from datetime import timedelta
from typing import Final

from gateway.catalog.primitives import TaskRules
from gateway.config.diagnostics.problems import Problems
from gateway.config.models import definitions as models
from gateway.config.models.tasks import TaskDefaults

_MILLISECOND: Final = timedelta(milliseconds=1)


def compile_task_rules(config: models.Tool, *, defaults: TaskDefaults, problems: Problems) -> TaskRules | None:
    """The rules of the tool's tasks; None where its calls never become tasks."""
    task = config.task
    if task is None:
        return None
    if task.restart and not (config.annotations is not None and config.annotations.idempotent):
        problems.at("task", "restart").error(
            "only what is idempotent may be begun again: say `annotations: {idempotent: true}`, if it is"
        )
    if task.mode == "never":
        return None
    return TaskRules(
        is_required=task.mode == "required",
        asks_before=task.ask == "before",
        after=task.after.total_seconds() if task.mode == "optional" else 0,
        ttl_ms=(task.ttl or defaults.ttl) // _MILLISECOND,
        poll_ms=task.poll // _MILLISECOND,
        restarts=task.restart,
    )
