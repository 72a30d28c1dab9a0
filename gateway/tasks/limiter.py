"""Limits how many tasks one caller, and all, have at once: `limits.tasks`.

A task counts from before it is written down until it has ended, so that many requests at once cannot pass the limit
together. One that waits for input counts, too: its record lasts as long.
"""

import secrets
from collections import Counter
from collections.abc import Mapping
from typing import Final, NoReturn

from gateway.config.models.tasks import TaskLimits
from gateway.errors import OverLimitError

_ID_BYTES: Final = 16
"""128 bits: an id is all that an anonymous caller has to show (ext-tasks, "Security Considerations")."""
_RETRY_AFTER_SECONDS: Final = 10


class TaskLimiter:
    """Counts the tasks that have not ended, by the caller that each is counted for."""

    def __init__(self) -> None:
        self.refused = 0
        """Tasks that there was no room for."""
        self._counted_for: Final[dict[str, str]] = {}
        self._callers: Final[Counter[str]] = Counter()

    @property
    def unfinished(self) -> int:
        return len(self._counted_for)

    @property
    def unfinished_by_caller(self) -> Mapping[str, int]:
        return self._callers

    def reserve(self, caller: str, bounds: TaskLimits) -> str:
        """Count one more task of a caller, and return its id, to be added or released.

        Raises:
            OverLimitError: `limits.tasks` has no room for it.
        """
        # Without a bound of its own, no caller takes more than half: another one finds room.
        most = bounds.per_caller if bounds.per_caller is not None else max(1, bounds.total // 2)
        if self._callers[caller] >= most:
            self._refuse(f"No more than {most} tasks of one caller at once", limit="limits.tasks.per_caller")
        if self.unfinished >= bounds.total:
            self._refuse(f"No more than {bounds.total} tasks at once", limit="limits.tasks.total")
        task_id = secrets.token_hex(_ID_BYTES)
        self.count(task_id, caller)
        return task_id

    def count(self, task_id: str, caller: str) -> None:
        """Count a task that is there already, whatever the limit is now; one that is counted is not again."""
        if task_id in self._counted_for:
            return
        self._counted_for[task_id] = caller
        self._callers[caller] += 1

    def release(self, task_id: str) -> None:
        """Count a task no more."""
        caller = self._counted_for.pop(task_id, None)
        if caller is not None:
            self._callers[caller] -= 1
            if not self._callers[caller]:
                del self._callers[caller]

    def _refuse(self, why: str, *, limit: str) -> NoReturn:
        self.refused += 1
        raise OverLimitError(f"{why} ({limit})", retry_after=_RETRY_AFTER_SECONDS, limit=limit)
