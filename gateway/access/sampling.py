"""How often tools may ask a caller's model: `limits.sampling.rate`. In memory, one event loop.

Counted where a question goes out. A modern call that is tried again has its earlier answers with it, and pays for none
of them twice.
"""

import math
import time
from functools import cached_property
from typing import Final

from limits import parse
from limits.storage import MemoryStorage
from limits.strategies import MovingWindowRateLimiter

from gateway.errors import ExecutionError

_NAMESPACE: Final = "sampling"


class SamplingBudget:
    """What callers have spent. It outlives reloads, so that an edit gives nobody a second budget."""

    def spend(self, samples: int, *, caller: str, rate: str | None) -> None:
        """Count questions to the caller's model, of which the file allows so many, such as 10/minute.

        Raises:
            ExecutionError: they are more than the rate allows; none is counted.
        """
        if rate is None or samples == 0:
            return
        item = parse(rate)
        if not self._limiter.hit(item, _NAMESPACE, caller, cost=samples):
            free_at = self._limiter.get_window_stats(item, _NAMESPACE, caller).reset_time
            seconds = max(1, math.ceil(free_at - time.time()))
            raise ExecutionError(
                f"The client's model was asked too often: {rate} at the most (limits.sampling). "
                f"Try again in {seconds} s."
            )

    @cached_property
    def _limiter(self) -> MovingWindowRateLimiter:
        return MovingWindowRateLimiter(MemoryStorage())  # it starts a thread: only for those who want it
