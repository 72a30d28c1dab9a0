"""The right to run among a limited number of concurrent calls, as the parts see it that do the work."""

import asyncio
from typing import Protocol


class Permit(Protocol):
    """The right to run, among a limited number of concurrent calls."""

    def hold_until_done(self, task: asyncio.Task[None]) -> None:
        """Keep the permit, after the call has been answered, until `task` (clean-up) is done."""
