"""Tells listen streams of the tasks that they name: `notifications/tasks` (ext-tasks, "Task Status Notifications")."""

from collections.abc import Callable
from typing import Final

from gateway.protocol.notifier import ChangeNotifier
from gateway.protocol.tasks.wire import detailed
from gateway.tasks.task import Task


class TaskNotifications:
    """Implements `TaskObserver`."""

    def __init__(self, notifier: ChangeNotifier, *, clock: Callable[[], float]) -> None:
        self._notifier: Final = notifier
        self._clock: Final = clock

    def task_changed(self, task: Task) -> None:
        if subscriptions := self._notifier.of_task(task.id):
            state = detailed(task, now=self._clock())
            for subscription in subscriptions:
                subscription.tell_task(task.id, state)

    def task_progressed(self, task: Task) -> None:
        self.task_changed(task)
