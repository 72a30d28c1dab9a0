"""Records the latest progress reports of tasks, bounded."""

from collections.abc import Sequence
from typing import Final

from gateway.bounded_map import BoundedMap
from gateway.json_types import JsonObject
from gateway.rfc3339 import timestamp
from gateway.tasks.runner import TaskProgressed

MAX_TASKS: Final = 1000
_MAX_REPORTS: Final = 20


class TaskProgress:
    """The latest reports of each task."""

    def __init__(self) -> None:
        self._reports: Final[BoundedMap[str, tuple[tuple[float, str], ...]]] = BoundedMap(MAX_TASKS)

    def record(self, event: TaskProgressed) -> None:
        task = event.task
        before = self._reports.get(task.id) or ()
        self._reports.put(task.id, (*before[1 - _MAX_REPORTS :], (task.updated, task.message)))

    def shown(self, task_id: str) -> Sequence[JsonObject]:
        """Return the reports of a task, oldest first, with masked messages."""
        return [{"at": timestamp(at), "message": message} for at, message in self._reports.get(task_id) or ()]
